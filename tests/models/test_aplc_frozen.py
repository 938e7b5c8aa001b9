"""Layers that are not trained read each text once; the result is as if the whole encoder had read it every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import longtail.models.aplc.frozen as reading
from longtail.errors import SettingError
from longtail.features.token_rows import TokenRows
from longtail.models.aplc.frozen import reader, trained_part
from longtail.nn.encoders import Encoder, hugging_face, layer_list, longest, scratch

ROWS = TokenRows.of([[5, 6], [7], [8, 9, 10, 5, 6, 7], [11, 11, 11]])
SOME = np.array([2, 0])
BERT = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
MODELS: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "roberta": {**BERT, "pad_token_id": 1, "max_position_embeddings": 40},
    "mpnet": {**BERT, "pad_token_id": 1},
    "distilbert": {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32},
    "xlnet": {"d_model": 16, "n_layer": 3, "n_head": 2, "d_inner": 32},
}


@pytest.fixture(params=MODELS)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    torch.manual_seed(0)
    return hugging_face({"model_type": request.param, "vocab_size": 20, **MODELS[request.param]}).eval()


@pytest.mark.parametrize("n_layers", [0, 1, 2, 3, None])
def test_the_parts_of_an_encoder_read_as_the_whole(encoder: Encoder, n_layers: int | None) -> None:
    trained = trained_part(encoder, n_layers)
    texts = reader(encoder, trained, ROWS)
    encoder.eval()
    whole = encoder(*encoder.batch(ROWS[SOME]))
    torch.testing.assert_close(texts.read(SOME), whole, rtol=5e-3, atol=5e-3)  # half precision in between
    torch.testing.assert_close(texts.once().read(SOME), whole, rtol=5e-3, atol=5e-3)


def test_gradients_reach_the_last_layers_only(encoder: Encoder) -> None:
    trained = trained_part(encoder, 2)
    assert trained is not None and len(layer_list(trained)) == 2 and len(layer_list(encoder)) == 3
    reader(encoder, trained, ROWS).read(SOME).square().sum().backward()
    first, *last = layer_list(encoder)
    assert all(weight.grad is None for weight in first.parameters())
    assert all(any(weight.grad is not None for weight in layer.parameters()) for layer in last)


def test_what_was_read_is_kept_for_the_next_run(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = trained_part(encoder, 1)
    before = reader(encoder, trained, ROWS, str(tmp_path)).read(SOME)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "encode_below", lambda *_: pytest.fail("it was read before"))
        torch.testing.assert_close(reader(encoder, trained, ROWS, str(tmp_path)).read(SOME), before, rtol=0, atol=0)
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(file.read_bytes()[:-9] + b"something")
    torch.testing.assert_close(reader(encoder, trained, ROWS, str(tmp_path)).read(SOME), before, rtol=0, atol=0)
    reader(encoder, trained_part(encoder, 2), ROWS, str(tmp_path))
    reader(encoder, trained, ROWS[SOME], str(tmp_path))
    assert len(list(tmp_path.glob("*.npy"))) == 3  # other layers, other texts


def test_an_encoder_that_cannot_be_cut_says_so(encoder: Encoder) -> None:
    with pytest.raises(SettingError, match="trained_layers is 4, and this encoder has 3"):
        trained_part(encoder, 4)
    with pytest.raises(SettingError, match="cannot be cut"):
        trained_part(scratch("gru", 20, 16, 2), 1)
    broken = trained_part(encoder, 1)
    with torch.no_grad():
        for weight in broken.parameters():  # type: ignore[union-attr]
            weight.copy_(torch.full_like(weight, float("nan")))
    with pytest.raises(SettingError, match="no plain chain"):
        reader(hugging_face(encoder.spec["config"]), broken, ROWS)


def test_how_many_tokens_a_model_has_positions_for() -> None:
    def of(kind: str, **more: Any) -> int | None:
        return longest(hugging_face({"model_type": kind, "vocab_size": 20, **MODELS[kind], **more}).model)

    assert of("bert") == 512
    assert of("roberta", max_position_embeddings=514) == 512  # the first two are of no token
    assert of("xlnet") is None
