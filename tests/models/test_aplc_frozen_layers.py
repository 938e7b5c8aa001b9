"""Frozen layers encode each text once; the result is the same as that of the whole encoder each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail.errors import SettingError
from longtail.features.token_rows import TokenRows
from longtail.models.aplc import frozen_layers
from longtail.models.aplc.frozen_layers import prepare_texts, take_trainable
from longtail.nn.encoder_factory import make_untrained
from longtail.nn.encoders import TextEncoder, find_layers
from longtail.nn.hugging_face import make_hugging_face

ROWS = TokenRows.from_lists([[5, 6], [7], [8, 9, 10, 5, 6, 7], [11, 11, 11]])
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
def encoder(request: pytest.FixtureRequest) -> TextEncoder:
    torch.manual_seed(0)
    return make_hugging_face({"model_type": request.param, "vocab_size": 20, **MODELS[request.param]}).eval()


@pytest.mark.parametrize("n_layers", [0, 1, 2, 3, None])
def test_the_parts_of_an_encoder_equal_the_whole(encoder: TextEncoder, n_layers: int | None) -> None:
    trained = take_trainable(encoder, n_layers)
    texts = prepare_texts(encoder, trained, ROWS)
    encoder.eval()
    whole = encoder(*encoder.pad_batch(ROWS[SOME]))
    torch.testing.assert_close(texts.encode(SOME), whole, rtol=5e-3, atol=5e-3)  # half precision in between
    torch.testing.assert_close(texts.freeze().encode(SOME), whole, rtol=5e-3, atol=5e-3)


def test_gradients_reach_the_last_layers_only(encoder: TextEncoder) -> None:
    trained = take_trainable(encoder, 2)
    assert trained is not None and len(find_layers(trained)) == 2 and len(find_layers(encoder)) == 3
    prepare_texts(encoder, trained, ROWS).encode(SOME).square().sum().backward()
    first, *last = find_layers(encoder)
    assert all(weight.grad is None for weight in first.parameters())
    assert all(any(weight.grad is not None for weight in layer.parameters()) for layer in last)


def test_the_output_of_frozen_layers_is_cached_for_later_runs(
    encoder: TextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = take_trainable(encoder, 1)
    before = prepare_texts(encoder, trained, ROWS, str(tmp_path)).encode(SOME)
    with monkeypatch.context() as patch:
        patch.setattr(frozen_layers, "encode_lower_layers", lambda *_: pytest.fail("it is in the cache"))
        torch.testing.assert_close(prepare_texts(encoder, trained, ROWS, str(tmp_path)).encode(SOME), before, rtol=0, atol=0)
    (file,) = tmp_path.glob("*.npy")
    file.write_bytes(file.read_bytes()[:-9] + b"something")
    torch.testing.assert_close(prepare_texts(encoder, trained, ROWS, str(tmp_path)).encode(SOME), before, rtol=0, atol=0)
    prepare_texts(encoder, take_trainable(encoder, 2), ROWS, str(tmp_path))
    prepare_texts(encoder, trained, ROWS[SOME], str(tmp_path))
    assert len(list(tmp_path.glob("*.npy"))) == 3  # other layers, other texts


def test_an_encoder_that_cannot_be_trained_in_part_is_refused(encoder: TextEncoder) -> None:
    with pytest.raises(SettingError, match="trained_layers is 4, but this encoder has 3"):
        take_trainable(encoder, 4)
    with pytest.raises(SettingError, match="only pretrained transformers"):
        take_trainable(make_untrained("gru", 20, 16, 2), 1)
    broken = take_trainable(encoder, 1)
    with torch.no_grad():
        for weight in broken.parameters():  # type: ignore[union-attr]
            weight.copy_(torch.full_like(weight, float("nan")))
    with pytest.raises(SettingError, match="not a simple chain"):
        prepare_texts(make_hugging_face(encoder.spec["config"]), broken, ROWS)


def test_the_maximum_number_of_tokens_is_that_of_positions() -> None:
    def max_tokens(kind: str, **more: Any) -> int | None:
        return make_hugging_face({"model_type": kind, "vocab_size": 20, **MODELS[kind], **more}).max_tokens

    assert max_tokens("bert") == 512
    assert max_tokens("roberta", max_position_embeddings=514) == 512  # the first two are not used
    assert max_tokens("xlnet") is None
