"""Constraints: which labels words stand for, what holds together, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail import Constraints, Labels
from longtail.decisions.constraints import combine_constraints
from longtail.decisions.rules import LabelRules
from longtail.errors import SettingError
from longtail.kernels import Bools
from longtail.topk import NO_LABEL

LABELS = Labels(
    ("pets", "cats", "kittens", "dogs", "use::edit", "use::view, print", "a[1]"),
    parents=((), ("pets",), ("cats",), ("pets",), (), (), ()),
    uris=("http://x/0", "http://x/1", "http://x/2", "http://x/3", "", "", ""),
    notations=("", "59.1", "59.11", "59.2", "", "", ""),
    alt_names=((), ("felines",), (), (), (), (), ()),
)


def names(mask: Bools | None) -> set[str]:
    """The names of the labels of a mask."""
    assert mask is not None
    return {LABELS.names[label] for label in np.flatnonzero(mask)}


def mask(**values: Any) -> set[str]:
    """The names of the labels that constraints allow."""
    return names(Constraints(**values).resolve(LABELS).mask)


def test_labels_are_named_by_name_uri_notation_or_another_name() -> None:
    for word in ("cats", "http://x/1", "59.1", "felines"):
        assert mask(allow=[word]) == {"cats"}
    assert mask(allow=["use::view, print"]) == {"use::view, print"}  # commas are part of names


def test_wildcards_match_names_uris_and_notations() -> None:
    assert mask(allow=["use::*"]) == {"use::edit", "use::view, print"}
    assert mask(allow=["59.1*"]) == {"cats", "kittens"}
    assert mask(allow=["http://x/[12]"]) == {"cats", "kittens"}
    assert mask(allow=["?ogs"]) == {"dogs"}
    assert mask(allow=["a[1]"]) == {"a[1]"}  # a name comes before a wildcard


def test_allow_deny_and_subtrees() -> None:
    assert mask(allow=["cats", "dogs"], deny=["dogs"]) == {"cats"}
    assert mask(subtrees=["cats"]) == {"cats", "kittens"}
    assert mask(subtrees=["pets"], deny=["kittens"]) == {"pets", "cats", "dogs"}
    assert mask(subtrees=["cats"], allow=["use::edit"]) == {"cats", "kittens", "use::edit"}
    assert mask(deny=["*"], allow=["cats"]) == set()
    assert mask(allow=[]) == set()  # an empty list allows nothing
    assert Constraints().resolve(LABELS).mask is None


def test_required_labels_need_not_be_allowed_but_not_be_denied() -> None:
    assert mask(allow=["dogs"], required=["use::edit"]) == {"dogs", "use::edit"}
    with pytest.raises(SettingError, match='"dogs" is both required and denied'):
        combine_constraints(LABELS, [Constraints(required=["dogs"]), Constraints(deny=["d*"])])
    predicted_as = np.arange(len(LABELS))
    predicted_as[LABELS.ids["dogs"]] = NO_LABEL
    with pytest.raises(SettingError, match="retired"):
        combine_constraints(LABELS, [Constraints(required=["dogs"])], predicted_as=predicted_as)
    with pytest.raises(SettingError, match='"cats" and "dogs" are both required, but exclude each other'):
        combine_constraints(LABELS, [Constraints(required=["cats", "dogs"]), Constraints(at_most_one=[["cats", "dogs"]])])


def test_all_constraints_hold_together() -> None:
    both = combine_constraints(LABELS, [Constraints(allow=["cats", "dogs"]), Constraints(deny=["cats"], allow=["*s"])])
    assert both is not None and names(both.mask) == {"dogs"}
    required = combine_constraints(LABELS, [Constraints(required=["use::edit"]), Constraints(allow=["cats"])])
    assert required is not None and names(required.mask) == {"cats", "use::edit"}
    allowed, predicted_as = np.arange(7) < 3, np.array([1, 1, 2, 3, 4, 5, 6])
    rules = combine_constraints(LABELS, [], allowed, predicted_as)
    assert rules is not None and names(rules.mask) == {"cats", "kittens"}
    assert combine_constraints(LABELS, []) is None


def test_an_unknown_label_is_an_error_with_a_suggestion() -> None:
    for field, value in {
        "allow": ["kats"],
        "deny": ["kats"],
        "subtrees": ["kats"],
        "required": ["kats"],
        "at_most_one": [["kats"]],
    }.items():
        with pytest.raises(SettingError, match=r'there is no label "kats"\. Did you mean "cats"'):
            Constraints(**{field: value}).resolve(LABELS)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r'no label matches "us::\*"'):
        Constraints(deny=["us::*"]).resolve(LABELS)


def test_subtrees_need_parents() -> None:
    with pytest.raises(SettingError, match="parents of the labels, which are not known"):
        Constraints(subtrees=["a"]).resolve(Labels(("a", "b")))


def test_values_of_the_wrong_kind_are_refused() -> None:
    for values in ({"allow": "cats"}, {"deny": None}, {"required": [3]}, {"at_most_one": "cats"}, {"at_most_one": ["cats"]}):
        with pytest.raises(SettingError):
            Constraints(**values)  # type: ignore[arg-type]
    for value in (3, None, {"cats": ["dogs"]}):
        with pytest.raises(SettingError, match=r"at_most_one is .*Pass a list of groups"):
            Constraints(at_most_one=value)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r'deny is .*Pass a list of labels: \["some label"\]'):
        Constraints(deny={"cats": 1})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="It must be true or false"):
        Constraints(with_parents="yes")  # type: ignore[arg-type]


def test_constraints_are_found_once_per_vocabulary() -> None:
    constraints = Constraints(allow=["cats"])
    first = constraints.resolve(LABELS)
    assert constraints.resolve(LABELS) is first
    other = constraints.resolve(Labels(("dogs", "cats")))
    assert isinstance(other, LabelRules) and other.allowed.tolist() == [False, True]


def test_a_file_holds_everything(tmp_path: Path) -> None:
    constraints = Constraints(
        allow=["cats", "use::view, print"],
        deny=("dogs",),
        subtrees=["pets"],
        required=["use::edit"],
        at_most_one=[["cats", "kittens"], ["use::*"]],
        with_parents=True,
    )
    constraints.to_file(tmp_path / "rules.json")
    again = Constraints.from_file(tmp_path / "rules.json")
    assert again == constraints and hash(again) == hash(constraints)
    Constraints(deny=["ä"]).to_file(tmp_path / "rules.json")
    assert json.loads((tmp_path / "rules.json").read_text()) == {"deny": ["ä"]}
    assert Constraints.from_dict({}) == Constraints()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no constraints"),
        ('{"alow": []}', 'Did you mean "allow"'),
        ("{", "not JSON"),
        ('{"deny": "a"}', r"rules\.json: deny is 'a'"),
        ('{"at_most_one": 3}', r"rules\.json: at_most_one is 3"),
        ('{"at_most_one": ["axis", "out"]}', r'Pass a list of groups: \[\["axis", "out"\]\]'),
        ('{"at_most_one": [["axis"]]}', r"rules\.json: a group of at_most_one has one label, .axis"),
    ],
)
def test_a_file_with_errors_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "rules.json").write_text(content)
    with pytest.raises(SettingError, match=message):
        Constraints.from_file(tmp_path / "rules.json")
    with pytest.raises(SettingError, match="cannot be read"):
        Constraints.from_file(tmp_path / "none.json")
