"""The same seed and number of threads give the same network, bit for bit, with every encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from longtail import Dataset, Tagger
from longtail.features.pretrained import SCRATCH_ENCODERS
from longtail.features.tokens import Tokens

N_TEXTS = 40


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, train: Dataset) -> Path:
    """A folder with a small pretrained BERT."""
    folder = tmp_path_factory.mktemp("bert")
    tokens = Tokens(special=True).fit((train.texts or [])[:N_TEXTS])
    tokens.tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=tokens.n_tokens, **sizes)).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")
@pytest.mark.parametrize("encoder", [*SCRATCH_ENCODERS, "frozen", "trained"])
def test_training_twice_gives_the_same_arrays(encoder: str, bert: Path, train: Dataset) -> None:
    """The state of torch's random numbers before training has no influence."""
    settings = {"width": 16, "layers": 1} if encoder in SCRATCH_ENCODERS and encoder != "bag" else {}
    if encoder in ("frozen", "trained"):
        settings = {"encoder_dropout": 0.1, "trained_layers": 1} if encoder == "trained" else {"trained_layers": 0}
    name = encoder if encoder in SCRATCH_ENCODERS else str(bert)
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        tagger = Tagger("aplc", encoder=name, hidden=8, epochs=1, holdout=0, collapse_epochs=0, **settings)
        states.append(tagger.fit((train.texts or [])[:N_TEXTS], train.Y[:N_TEXTS]).pipeline.state()["model"])
    assert states[0].keys() == states[1].keys()
    for part, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][part], err_msg=part)
