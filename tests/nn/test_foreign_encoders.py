"""Encoders from outside: no code of theirs runs, nothing is unpickled, downloaded or asked, and no size is believed."""

from __future__ import annotations

import builtins
import json
import pickle
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from longtail.errors import BundleError, LongtailError, SettingError
from longtail.features.token_rows import TokenRows
from longtail.features.tokens import Tokens
from longtail.linear.quantised import QuantisedTable
from longtail.nn.encoder_factory import encoder_from_arrays, encoder_to_arrays, load_pretrained, make_untrained
from longtail.nn.encoders import encode_texts
from longtail.nn.saved_encoder import encode_bags
from longtail.state import State

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the network nor a person at the keyboard is there."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        pytest.fail("the network or standard input was used")

    monkeypatch.setattr(builtins, "input", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A folder with a small BERT and its tokenizer."""
    tokens = Tokens(special=True).fit(["red apple", "green rose"])
    transformers.BertModel(transformers.BertConfig(vocab_size=tokens.n_tokens, **SIZES)).save_pretrained(tmp_path / "bert")
    tokens.tokenizer.save(str(tmp_path / "bert" / "tokenizer.json"))
    return tmp_path / "bert"


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.ckpt"])
def test_pickled_weights_are_refused_and_not_read(bert: Path, tmp_path: Path, name: str) -> None:
    (bert / "model.safetensors").unlink()
    (bert / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(SettingError, match=f"{name} are pickled.*Convert the weights to safetensors"):
        load_pretrained(str(bert))
    assert not (tmp_path / "exploded").exists()


def test_weights_in_safetensors_are_read_whatever_is_next_to_them(bert: Path, tmp_path: Path) -> None:
    (bert / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert load_pretrained(str(bert)).width == 8
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("model_type", ["bert", "evil"])
def test_code_of_a_model_never_runs(bert: Path, tmp_path: Path, model_type: str) -> None:
    """A type that transformers knows is built without the code; another one is refused."""
    for file in ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py"):
        (bert / file).write_text(f"open({str(tmp_path / 'exploded')!r}, 'w')")
    code = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
    change_config(bert, auto_map=code, model_type=model_type)
    if model_type == "bert":
        assert load_pretrained(str(bert)).width == 8
    else:
        with pytest.raises(SettingError, match="cannot be read"):
            load_pretrained(str(bert))
    (bert / "tokenizer.json").unlink()
    (bert / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["tokenization_evil.Evil", None]}})
    )
    with suppress(LongtailError):
        Tokens(pretrained=str(bert)).fit(["red"])
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "change", [{"attn_implementation": "someone/kernel"}, {"quantization_config": {"quant_method": "gptq"}}]
)
def test_kernels_and_quantisers_from_elsewhere_are_refused(bert: Path, change: dict[str, Any]) -> None:
    change_config(bert, **change)
    with pytest.raises(SettingError, match="runs no code of models"):
        load_pretrained(str(bert))


def test_adapters_are_refused(bert: Path) -> None:
    (bert / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/model", "peft_type": "LORA"}')
    with pytest.raises(SettingError, match="an adapter of another model"):
        load_pretrained(str(bert))


def test_a_model_that_is_not_on_the_machine_is_not_downloaded() -> None:
    with pytest.raises(SettingError, match="hf download someone/model"):
        load_pretrained("someone/model")


def saved(bert: Path) -> tuple[dict[str, Any], State]:
    arrays = encoder_to_arrays(load_pretrained(str(bert)))
    return json.loads(arrays["spec"].tobytes()), arrays


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 10**9},
        {"num_hidden_layers": 10**8},
        {"hidden_size": 2**20, "intermediate_size": 2**20},
        {"max_position_embeddings": 10**9},
        {"hidden_act": "evil"},
        {"num_attention_heads": 3},
        {"model_type": "no such type"},
        {"hidden_size": "wide"},
        {"return_dict": False},
        {"quantization_config": {"quant_method": "gptq"}},
        {"_attn_implementation": "someone/kernel"},
    ],
    ids=str,
)
def test_a_saved_encoder_with_another_description_is_refused_before_it_is_built(bert: Path, change: dict[str, Any]) -> None:
    spec, arrays = saved(bert)
    text = json.dumps({**spec, "config": {**spec["config"], **change}}).encode()
    with pytest.raises(LongtailError):
        encoder_from_arrays({**arrays, "spec": np.frombuffer(text, np.uint8)})


@pytest.mark.parametrize(
    "change", [{"n_tokens": 10**12}, {"width": 2**30}, {"layers": 10**8}, {"kind": "evil"}, {"width": 7}]
)
def test_sizes_of_encoders_from_scratch_must_be_those_of_their_arrays(change: dict[str, Any]) -> None:
    arrays = encoder_to_arrays(make_untrained("gru", 20, 8, 1))
    text = json.dumps({**json.loads(arrays["spec"].tobytes()), **change}).encode()
    with pytest.raises(LongtailError):
        encoder_from_arrays({**arrays, "spec": np.frombuffer(text, np.uint8)})
    with pytest.raises(BundleError, match=r"has the width 8\. It must be 9"):
        encoder_from_arrays(arrays, width=9)


def test_tokens_that_an_encoder_does_not_know_are_an_error(bert: Path) -> None:
    rows = TokenRows.from_lists([[10**6]])
    for encoder in (load_pretrained(str(bert)), make_untrained("gru", 20, 8, 1), make_untrained("bag", 20, 8, 1)):
        with pytest.raises(LongtailError):
            encode_texts(encoder, rows)
    with pytest.raises(BundleError, match="the encoder knows 3 tokens"):
        encode_bags(rows, QuantisedTable.quantise(np.ones((3, 2), np.float32)), threads=1)


def test_no_module_of_a_model_was_imported() -> None:
    assert not any("evil" in name for name in sys.modules)
