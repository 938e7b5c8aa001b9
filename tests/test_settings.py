"""Settings: declarations, limits, error messages, documentation, and parsing from text."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from longtail.errors import SettingError
from longtail.limits import Limits, check_value
from longtail.settings import MAX_NUMBER, MAX_SEED, Settings, describe, parse_settings, parse_value, setting, settings


@settings
class TrainingSettings(Settings):
    """Settings of a training loop."""

    epochs: int = setting("Passes over the training data.", default=10, paper="20", positive=True)
    rate: float | None = setting("Learning rate. None: chosen by the method.", default=None, positive=True)
    schedule: str = setting("Schedule: linear or constant.", default="linear", choices=("linear", "constant"))


@settings
class NetworkSettings(TrainingSettings):
    """Settings of a network."""

    epochs: int = 5
    dropout: float = setting("Dropout rate.", default=0.2, minimum=0, below=1)
    holdout: float = setting("Share of held-out samples.", default=0.05, minimum=0, maximum=0.5)
    depth: int = setting("Number of layers.", default=2, minimum=1, maximum=8)
    offset: float = setting("Any number.", default=0.0)
    weight: float = setting("Weight of a term.", default=1.0, minimum=0)
    tail: float | str = setting("Share of the tail, or auto.", default="auto", positive=True, choices=("auto",))
    bias: bool = setting("Whether to add a bias.", default=True)
    log: str | None = setting("Log file.", default=None)
    encoder: str = setting("Encoder.", default="words", choices=lambda: ("words", "tokens"))
    seed: int = setting("Random seed.", default=0, minimum=0, maximum=MAX_SEED)


class Network(NetworkSettings):
    """A model that inherits its settings."""

    def fit(self) -> Network:
        self.check()
        self.weights = np.zeros(self.depth)
        return self


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"epochs": 1, "rate": 1e-4, "dropout": 0},
    {"epochs": np.int64(3), "rate": np.float32(0.5), "dropout": np.float64(0.5)},
    {"rate": 1, "offset": -5, "weight": 0},
    {"holdout": 0.5, "depth": 8, "dropout": 0.999, "seed": MAX_SEED},
    {"tail": 0.3, "bias": False, "log": "log.jsonl", "encoder": "tokens"},
    {"offset": MAX_NUMBER, "epochs": MAX_NUMBER},
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"epochs": 0}, "epochs is 0. It must be a positive integer"),
    ({"epochs": 2.0}, "epochs is 2.0. It must be a positive integer"),
    ({"epochs": True}, "epochs is True. It must be a positive integer"),
    ({"epochs": None}, "epochs is None. It must be a positive integer"),
    ({"epochs": "3"}, 'epochs is "3". It must be a positive integer'),
    ({"epochs": 2**40}, "epochs is 1099511627776. It must be a positive integer at most 2^31"),
    ({"rate": 0.0}, "rate is 0.0. It must be a positive number"),
    ({"rate": float("nan")}, "rate is nan. It must be a positive number"),
    ({"rate": float("inf")}, "rate is inf. It must be a positive number at most 2^31"),
    ({"weight": -1}, "weight is -1. It must be a non-negative number"),
    ({"dropout": 1}, "dropout is 1. It must be a number at least 0 and below 1"),
    ({"holdout": 0.6}, "holdout is 0.6. It must be a number at least 0 and at most 0.5"),
    ({"depth": 9}, "depth is 9. It must be an integer at least 1 and at most 8"),
    ({"offset": "far"}, 'offset is "far". It must be a number'),
    ({"seed": -1}, "seed is -1. It must be a non-negative integer"),
    ({"seed": MAX_SEED + 1}, f"seed is {MAX_SEED + 1}. It must be a non-negative integer at most 2^62"),
    ({"bias": 1}, "bias is 1. It must be true or false"),
    ({"log": 3}, "log is 3. It must be a string"),
    ({"schedule": "lineal"}, 'schedule is "lineal". Did you mean "linear"? Available: constant, linear'),
    ({"schedule": None}, "schedule is None. Available: constant, linear"),
    ({"encoder": 3}, "encoder is 3. Available: tokens, words"),
    ({"tail": "car"}, 'tail is "car". Available: auto'),
    ({"tail": -0.5}, "tail is -0.5. It must be a positive number or one of: auto"),
    ({"tail": True}, "tail is True. It must be a positive number or one of: auto"),
]


@pytest.mark.parametrize("values", ACCEPTED, ids=str)
def test_valid_values_are_accepted(values: dict[str, Any]) -> None:
    NetworkSettings(**values).check()


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_invalid_values_are_refused_with_a_hint(values: dict[str, Any], message: str) -> None:
    given = NetworkSettings(**values)  # the constructor only stores
    with pytest.raises(SettingError) as caught:
        given.check()
    assert str(caught.value) == message


@given(st.integers() | st.floats() | st.booleans() | st.text(max_size=3) | st.none())
def test_any_value_is_either_accepted_or_refused_with_a_setting_error(value: Any) -> None:
    for name in NetworkSettings.param_names():
        try:
            NetworkSettings(**{name: value}).check()
        except SettingError as error:
            assert str(error).startswith(f"{name} is ")


def test_limits_are_compared_without_rounding() -> None:
    with pytest.raises(SettingError):  # equal to the maximum as a float
        check_value("seed", MAX_SEED + 1, "int", Limits(maximum=MAX_SEED))


# Inheritance


def test_a_changed_default_keeps_the_documentation_and_the_limits() -> None:
    assert NetworkSettings().epochs == 5 and TrainingSettings().epochs == 10
    of_base, of_subclass = ({each.name: each for each in fields(cls)} for cls in (TrainingSettings, NetworkSettings))
    assert of_subclass["epochs"].metadata == of_base["epochs"].metadata
    with pytest.raises(SettingError, match="positive integer"):
        NetworkSettings(epochs=0).check()


def test_a_repeated_annotation_keeps_the_default() -> None:
    @settings
    class Repeated(TrainingSettings):
        """Repeats the type only."""

        epochs: int

    assert Repeated().epochs == 10 and next(describe(Repeated)).doc == "Passes over the training data."


def test_the_nearest_base_class_wins() -> None:
    @settings
    class Fast(TrainingSettings):
        """Fewer epochs."""

        epochs: int = 1

    @settings
    class FastNetwork(Fast, NetworkSettings):
        """Both."""

        dropout: float = 0.0

    assert FastNetwork().epochs == 1 and FastNetwork().dropout == 0.0
    assert {each.name: each.default for each in describe(FastNetwork)}["epochs"] == 1


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(TypeError, match="write epochs: int = …"):

        @settings
        class NoType(TrainingSettings):
            epochs = 20

    with pytest.raises(TypeError, match="declare it with setting"):

        @settings
        class NoDocumentation(Settings):
            depth: int = 3

    with pytest.raises(TypeError, match="is a list"):

        @settings
        class WrongType(Settings):
            sizes: list[int] = setting("Sizes.", default=())


def test_types_need_not_be_strings() -> None:
    """In a module without ``from __future__ import annotations`` they are classes."""
    cls = type("Eager", (Settings,), {"__annotations__": {"depth": int | None}, "depth": setting("Depth.", default=None)})
    eager = settings(cls)
    assert next(describe(eager)).type == "int | None"
    with pytest.raises(SettingError, match="It must be an integer"):
        eager(depth="deep").check()  # type: ignore[call-arg]


# The habits of scikit-learn


def test_repr_shows_the_settings_that_differ_from_the_defaults() -> None:
    assert repr(NetworkSettings()) == "NetworkSettings()"
    assert repr(Network(epochs=5, dropout=0.1, log="a b")) == "Network(dropout=0.1, log='a b')"


def test_get_and_set_params() -> None:
    network = Network(depth=3)
    assert network.get_params()["depth"] == 3 and list(network.get_params()) == Network.param_names()
    assert network.set_params(depth=4, bias=False) is network
    assert network.depth == 4 and network.bias is False


def test_an_unknown_setting_is_refused_and_nothing_is_changed() -> None:
    network = Network()
    with pytest.raises(SettingError, match=r'Network has no setting "dept"\. Did you mean "depth"'):
        network.set_params(epochs=99, dept=4)
    assert network.epochs == 5
    with pytest.raises(TypeError, match="dept"):
        Network(dept=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Network(4)  # type: ignore[misc]


def test_settings_are_frozen_but_a_fitted_model_can_store_what_it_learned() -> None:
    network = Network(depth=3).fit()
    assert len(network.weights) == 3
    for target in (network, NetworkSettings()):
        with pytest.raises(FrozenInstanceError):
            target.depth = 4  # type: ignore[misc]


def test_clones_and_copies_have_the_same_settings() -> None:
    network = Network(depth=3, rate=0.1)
    for other in (clone(network), copy.copy(network), pickle.loads(pickle.dumps(network))):  # noqa: S301
        assert other is not network and other.get_params() == network.get_params()


# Documentation


def test_describe_lists_every_setting() -> None:
    first, second, *_ = describe(NetworkSettings)
    assert first == ("epochs", "int", 5, "20", "Passes over the training data.", ())
    assert second == ("rate", "float | None", None, "", "Learning rate. None: chosen by the method.", ())
    assert [each.name for each in describe(NetworkSettings)] == NetworkSettings.param_names()


def test_the_docstring_lists_every_setting() -> None:
    lines = (NetworkSettings.__doc__ or "").splitlines()
    assert lines[:2] == ["Settings of a network.", ""]
    assert lines[2] == ":param epochs: Passes over the training data. (int, default 5, paper 20)"
    assert lines[3] == ":param rate: Learning rate. None: chosen by the method. (float | None, default None)"
    assert len(lines) == 2 + len(NetworkSettings.param_names())


# Parsing


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("50", "int", 50),
        ("-3", "int", -3),
        ("0.5", "float", 0.5),
        ("1e-3", "float", 1e-3),
        ("2", "float", 2.0),
        ("none", "int | None", None),
        ("None", "float | None", None),
        ("none", "str", "none"),
        ("7", "int | None", 7),
        ("true", "bool", True),
        ("No", "bool", False),
        ("0", "bool", False),
        ("linear", "str", "linear"),
        ("5", "str", "5"),
        ("", "str", ""),
        ("a=b", "str", "a=b"),
        ("auto", "float | str", "auto"),
        ("0.25", "float | str", 0.25),
        ("e", "float | str", "e"),
        ("-", "float | str", "-"),
        ("nan", "float | str", "nan"),
        ("3", "int | str", 3),
        ("3.5", "int | str", "3.5"),
        ("3.5", "int | float", 3.5),
    ],
)
def test_values_are_parsed_by_their_type(text: str, kind: str, value: object) -> None:
    parsed = parse_value("name", text, kind)
    assert parsed == value and type(parsed) is type(value)
    assert parse_settings([f"name={text}"], {"name": kind}, "plt") == {"name": value}


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("many", "int", "an integer"),
        ("2.5", "int", "an integer"),
        ("", "int | None", "an integer"),
        ("none", "int", "an integer"),
        ("1,5", "float", "a number"),
        ("maybe", "bool", "true or false"),
    ],
)
def test_a_value_that_cannot_be_parsed_is_refused(text: str, kind: str, hint: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_value("beam", text, kind)
    assert str(caught.value) == f'beam is "{text}". It must be {hint}'


def test_numbers_that_are_not_finite_are_parsed_and_then_refused() -> None:
    values = parse_settings(["weight=nan"], {"weight": "float"}, "network")
    with pytest.raises(SettingError, match=r"weight is nan\. It must be a non-negative number"):
        NetworkSettings(**values).check()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("beam", 'the setting "beam" of plt has no value. Write beam=value'),
        ("bean=5", 'plt has no setting "bean". Did you mean "beam"? Available: beam'),
        ("seed=3", '"seed" cannot be set for plt alone. Use --seed 3, which applies to all methods'),
        ("threads=2", '"threads" cannot be set for plt alone. Use --threads 2, which applies to all methods'),
    ],
)
def test_words_that_are_not_settings_are_refused(word: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_settings([word], {"beam": "int"}, "plt")
    assert str(caught.value) == message


def test_the_last_value_of_a_setting_counts() -> None:
    assert parse_settings(["beam=5", "beam=7"], {"beam": "int"}, "plt") == {"beam": 7}
