"""MethodSpec: the text form of a method with its preset and settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import MethodSpec, Tagger
from longtail.errors import SettingError
from longtail.registry import METHODS, model_class
from longtail.spec import join_specs, known_settings, split_specs


@pytest.mark.parametrize(
    ("text", "method", "preset", "settings"),
    [
        ("plt", "plt", None, {}),
        ("plt:bonsai", "plt", "bonsai", {}),
        ("plt:xr-linear", "plt", "xr-linear", {}),
        ("plt:bonsai+beam=50", "plt", "bonsai", {"beam": 50}),
        ("plt+beam=50+C=0.5", "plt", None, {"beam": 50, "C": 0.5}),
        ("  plt : bonsai + beam = 50 ", "plt", "bonsai", {"beam": 50}),
        ("ovr+C=1e-05", "ovr", None, {"C": 1e-5}),
        ('ovr+C="1e+5"', "ovr", None, {"C": 1e5}),
        ("ovr+ngrams=1+code=none", "ovr", None, {"ngrams": 1, "code": None}),
        ("ovr+field_terms=no", "ovr", None, {"field_terms": False}),
        ('blend+members="plt, glas"', "blend", None, {"members": "plt, glas"}),
        ('blend+members=""', "blend", None, {"members": ""}),
        ('blend+members="none"', "blend", None, {"members": "none"}),
        ("blend+members=none", "blend", None, {"members": None}),
        ("plt+tail=auto", "plt", None, {"tail": "auto"}),
        ("plt+tail=0.5", "plt", None, {"tail": 0.5}),
    ],
)
def test_parse(text: str, method: str, preset: str | None, settings: dict[str, Any]) -> None:
    spec = MethodSpec.parse(text)
    assert (spec.method, spec.preset, spec.settings) == (method, preset, settings)
    assert all(type(spec.settings[name]) is type(value) for name, value in settings.items())
    assert MethodSpec.parse(str(spec)) == spec


def test_quotes_inside_quotes() -> None:
    inner = MethodSpec("ovr", settings={"dense": 'my "own", folder + more\\'})
    spec = MethodSpec("blend", settings={"members": join_specs([MethodSpec("plt"), inner])})
    again = MethodSpec.parse(str(spec))
    assert again == spec
    assert [MethodSpec.parse(part) for part in split_specs(again.settings["members"])] == [MethodSpec("plt"), inner]
    assert split_specs(f"plt, {spec}") == ["plt", str(spec)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 'no method ""'),
        ("pltt", 'no method "pltt". Did you mean "plt"'),
        ("plt beam=50", 'no method "plt beam=50"'),
        ("plt:", 'names no preset after the ":"'),
        ("plt:bonsay", 'no preset "bonsay". Did you mean "bonsai"'),
        ("plt:bonsai more+beam=50", 'no preset "bonsai more"'),
        ("plt+", "is not a setting of plt"),
        ("plt++beam=50", "is not a setting of plt"),
        ("plt+=50", "is not a setting of plt"),
        ("plt+beam", 'the setting "beam" of plt has no value'),
        ("plt+beam=", 'the setting "beam" of plt has no value'),
        ("plt+beem=50", 'no setting "beem". Did you mean "beam"'),
        ("plt+beam=50+beam=20", "sets beam twice"),
        ("plt+beam=50 more+C=1", 'beam is "50 more". It must be an integer'),
        ("plt+beam=many", 'beam is "many". It must be an integer'),
        ("plt+C=1e+5", 'the setting "5" of plt has no value. .* needs double quotes'),
        ("plt+seed=1", '"seed" cannot be set for plt alone. Use --seed 1'),
        ('blend+members="plt, glas', "a quote is not closed"),
        ('blend+members="plt"glas', "Put all of it in double quotes, or none of it"),
        ('blend+members=plt"glas"', "Put all of it in double quotes, or none of it"),
        ('blend+members="plt" "glas"', "Put all of it in double quotes, or none of it"),
        ('blend+"members"="plt"', "is not a setting of blend"),
        (r'blend+members="pl\t"', None),  # a tab, as JSON has it
        (r'blend+members="pl\x"', "Put all of it in double quotes, or none of it"),
        ("popularity+ngrams=1", 'popularity has no setting "ngrams"'),
    ],
)
def test_wrong_specs(text: str, found: str | None) -> None:
    if found is None:
        assert MethodSpec.parse(text).settings["members"] == "pl\t"
        return
    with pytest.raises(SettingError, match=found):
        MethodSpec.parse(text)


def test_an_unbalanced_quote_in_a_list_is_an_error() -> None:
    with pytest.raises(SettingError, match="a quote is not closed"):
        split_specs('plt, blend+members="plt, glas')
    assert split_specs(" plt ,, glas,") == ["plt", "glas"]


def test_further_words_override_the_settings_of_the_spec() -> None:
    spec = MethodSpec.parse("plt+beam=50+C=2", ["beam=20", "tree=balanced"])
    assert spec.settings == {"beam": 20, "C": 2.0, "tree": "balanced"}
    assert MethodSpec.parse("blend", ["members=plt, glas"]).settings["members"] == "plt, glas"  # no quotes are needed
    with pytest.raises(SettingError, match="has no value"):
        MethodSpec.parse("plt", ["beam"])


def test_a_spec_is_a_value() -> None:
    given = {"C": 1}
    spec = MethodSpec("ovr", settings=given)
    given["C"] = 2
    assert spec.settings == {"C": 1} and spec == MethodSpec("ovr", settings={"C": 1.0})
    assert len({spec, MethodSpec("ovr", settings={"C": 1.0}), MethodSpec("ovr")}) == 2
    with pytest.raises(AttributeError):
        spec.method = "plt"  # type: ignore[misc]


def test_the_preset_is_given_once() -> None:
    spec = MethodSpec.parse("plt:bonsai")
    assert spec.override("bonsai") == spec and MethodSpec("plt").override("bonsai") == spec
    with pytest.raises(SettingError, match='"plt:bonsai" names a preset, and preset is "parabel"'):
        spec.override("parabel")


def test_settings_override_the_preset() -> None:
    resolved = MethodSpec.parse("plt:bonsai+beam=50").resolve()
    assert resolved["beam"] == 50 and resolved["fanout"] == model_class("plt").presets["bonsai"]["fanout"]
    assert MethodSpec("plt").resolve() == model_class("plt").presets["best"]


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_round_trips_and_builds(method: str) -> None:
    for preset in model_class(method).presets:
        spec = MethodSpec.parse(f"{method}:{preset}")
        assert str(spec) == f"{method}:{preset}" and spec.build(seed=3, threads=1).spec == spec


def test_a_tagger_takes_every_form() -> None:
    spec = MethodSpec.parse("plt:bonsai+beam=50")
    for tagger in (
        Tagger("plt:bonsai+beam=50"),
        Tagger("plt", preset="bonsai", beam=50),
        Tagger("plt:bonsai", beam=50),
        Tagger(spec),
        Tagger(MethodSpec("plt"), preset="bonsai", beam=50),
        spec.build(seed=3, threads=2),
    ):
        assert tagger.spec == spec and repr(tagger) == 'Tagger("plt:bonsai+beam=50", not fitted)'
    assert tagger.model.get_params()["seed"] == 3 and tagger.model.get_params()["threads"] == 2


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**40), 2**40),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "str": st.text(),
}
KNOWN = {method: known_settings(method) for method in METHODS}


@st.composite
def specs(draw: st.DrawFn) -> MethodSpec:
    method = draw(st.sampled_from(sorted(METHODS)))
    preset = draw(st.none() | st.sampled_from(sorted(model_class(method).presets)))
    names = draw(st.lists(st.sampled_from(sorted(KNOWN[method])), unique=True, max_size=4)) if KNOWN[method] else []
    kinds = {name: KNOWN[method][name].split(" | ") for name in names}
    return MethodSpec(
        method,
        preset,
        {name: draw(st.one_of([VALUES[k] if k != "None" else st.none() for k in kinds[name]])) for name in names},
    )


@given(specs())
def test_every_spec_round_trips(spec: MethodSpec) -> None:
    again = MethodSpec.parse(str(spec))
    assert again == spec and str(again) == str(spec)
    assert {name: type(value) for name, value in again.settings.items()} == {
        name: type(value) for name, value in spec.settings.items()
    }


@given(st.lists(specs(), min_size=1, max_size=3))
def test_every_list_of_specs_round_trips(some: list[MethodSpec]) -> None:
    assert [MethodSpec.parse(text) for text in split_specs(join_specs(some))] == some
    nested = MethodSpec("blend", settings={"members": join_specs(some)})
    assert MethodSpec.parse(str(nested)) == nested


def test_every_setting_has_a_type_that_a_spec_can_hold() -> None:
    for method in METHODS:
        for each in fields(model_class(method)):
            assert set(str(each.type).split(" | ")) <= {*VALUES, "None"}, (method, each.name)
