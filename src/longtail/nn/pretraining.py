"""Domain pretraining: train an XLNet from scratch on texts, without their labels, and save it in a folder.

The folder has the format of transformers (config.json, model.safetensors, tokenizer.json); ``aplc`` and ``secseq`` take it
as their encoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.conditions import Condition, refuse_unused
from longtail.data.read import read
from longtail.errors import DataError
from longtail.features.batches import make_length_batches
from longtail.features.pretrained import choose_token_settings
from longtail.features.token_rows import TokenRows
from longtail.features.tokens import CLS, PAD, SEP, SPECIAL_PIECES, UNKNOWN, Tokens
from longtail.files import check_new_folder, create_folder
from longtail.kernels import Longs
from longtail.nn.devices import find_device, torch_threads
from longtail.nn.encoder_factory import check_size, make_untrained
from longtail.nn.hugging_face import XLNetEncoder, quiet_transformers
from longtail.nn.loop import train
from longtail.nn.loop_plan import plan_loop
from longtail.nn.permutation_lm import N_END_TOKENS, PermutationLM, draw_order
from longtail.nn.settings import TrainingPlan, TrainingSettings
from longtail.progress import Progress, resolve_progress
from longtail.settings import setting, settings

_MAX_HELD_OUT = 1000  # texts; more would not make the estimate of the loss much better
_MIN_TOKENS = 2 + N_END_TOKENS  # of a text: a word to predict, one to predict it from, SEP and CLS


@settings
class PretrainSettings(TrainingSettings):
    """Settings of pretraining."""

    width: int = setting("Dimension of the XLNet's vectors, even.", default=256, positive=True)
    layers: int = setting("Number of layers of the XLNet.", default=2, positive=True)
    max_length: int = setting("Maximum number of tokens of a text that are read.", default=256, minimum=_MIN_TOKENS)
    n_pieces: int | None = setting(
        "Number of word pieces. None: one for each word that occurs at least twice, at most 32,000.",
        default=None,
        positive=True,
    )
    rate: float = setting("Learning rate of AdamW.", default=1e-3, positive=True)
    batch: int = setting("Texts per batch.", default=32, positive=True)
    epochs: int = setting(
        "Number of epochs. The weights of the one with the lowest held-out loss are saved.", default=10, positive=True
    )
    schedule: str = "warm-linear"
    clip: float = 1.0
    average: str = "none"
    patience: int = 0
    holdout: float = setting(
        "Share of the texts on which the loss is measured and the epoch chosen.", default=0.05, positive=True, maximum=0.5
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for values that cannot work."""
        super().check()
        check_size(self.width, self.layers)
        refuse_unused(self, [Condition(False, "labels, which pretraining does not read", ("collapse_epochs",))])


@dataclass(frozen=True)
class PretrainResult:
    """The result of pretraining. Losses are means of −log p of the predicted words of held-out texts, in nats."""

    folder: Path
    n_texts: int  # without those that are too short
    n_tokens: int  # of the vocabulary
    loss: float
    loss_before: float = field(repr=False)  # training
    unigram_loss: float = field(repr=False)  # of a model that knows only the frequencies of words
    history: list[dict[str, float]] = field(repr=False)  # one row per epoch


def pretrain(
    data: Any,
    out: str | Path,
    *,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> PretrainResult:
    """Train a tokenizer and an XLNet on texts, and save both in a new folder.

    :param data: Texts, or data in any form that ``longtail.read`` takes; labels are left out.
    :param out: The new folder. Give it as ``encoder`` to the method aplc or secseq.
    :param progress: Whether to show progress bars. None: in terminals and notebooks.
    :param settings: See ``PretrainSettings``, such as width, layers, max_length and epochs.
    """
    chosen, display = PretrainSettings().set_params(**settings), resolve_progress(progress)
    chosen.check()
    check_new_folder(Path(out))  # before hours of training
    device = find_device(chosen.device)
    tokens = Tokens(**choose_token_settings("xlnet"), max_length=chosen.max_length, n_pieces=chosen.n_pieces)
    rows, valid = _split_texts(tokens.fit_transform(_get_texts(data), display), chosen.holdout, chosen.seed)
    torch.manual_seed(chosen.seed)
    encoder = make_untrained("xlnet", tokens.n_tokens, chosen.width, chosen.layers)
    assert isinstance(encoder, XLNetEncoder)
    net = PermutationLM(encoder, tokens.n_tokens).to(device)

    def batches(rng: np.random.Generator) -> list[Longs]:
        return make_length_batches(rows.lengths, rng, batch=chosen.batch)

    def loss(some: Longs) -> Tensor:
        ids, mask = encoder.pad_batch(rows[some])
        return net.loss(ids, mask, draw_order(mask)).mean()

    steps = len(batches(np.random.default_rng(0)))
    plan = TrainingPlan(batch=chosen.batch, epochs=chosen.epochs, rate=chosen.rate)
    loop = plan_loop(chosen, plan, steps, (rows.ids, rows.indptr, valid.ids, valid.indptr))
    with torch_threads(chosen.threads):
        before = _measure_loss(net, valid, chosen.batch)
        optimizer = torch.optim.AdamW(net.parameters(), lr=chosen.rate, weight_decay=0.0)
        metric = lambda: -_measure_loss(net, valid, chosen.batch)  # noqa: E731
        run = train(net, batches, loss, optimizer, loop, metric=metric, progress=display)
    _save(encoder, tokens, out)
    unigram_loss = _measure_unigram_loss(rows, valid, tokens.n_tokens)
    return PretrainResult(Path(out), len(rows) + len(valid), tokens.n_tokens, -run.best, before, unigram_loss, run.history)


def _get_texts(data: Any) -> Sequence[str]:
    dataset = read(data, labelled=False)
    if dataset.texts is None:
        raise DataError("pretraining needs texts, these are feature vectors", hint="Give texts")
    return dataset.texts


def _split_texts(rows: TokenRows, holdout: float, seed: int) -> tuple[TokenRows, TokenRows]:
    """Training texts and held-out texts, without those that are too short to predict a word of."""
    enough = np.flatnonzero(rows.lengths >= _MIN_TOKENS)
    if len(enough) < 2:
        found = f"{len(enough)} of the {len(rows)} texts have two words or more"
        raise DataError(found, hint="Pretraining needs at least two such texts, and is useful with thousands")
    shuffled = np.random.default_rng(seed).permutation(enough)
    n = min(max(round(holdout * len(enough)), 1), _MAX_HELD_OUT)
    return rows[np.sort(shuffled[n:])], rows[np.sort(shuffled[:n])]


@torch.no_grad()
def _measure_loss(net: PermutationLM, rows: TokenRows, batch: int) -> float:
    """The mean loss of predicted words, in orders that are the same each time."""
    net.eval()
    generator = torch.Generator().manual_seed(0)
    losses = []
    for some in make_length_batches(rows.lengths, np.random.default_rng(0), batch=batch):
        ids, mask = net.encoder.pad_batch(rows[some])
        losses.append(net.loss(ids, mask, draw_order(mask, generator)))
    return float(torch.cat(losses).mean())


def _measure_unigram_loss(rows: TokenRows, valid: TokenRows, n_tokens: int) -> float:
    """The mean −log p of the words of held-out texts, p from their counts in the training texts plus 1."""
    seen, held_out = (_count_words(some, n_tokens) for some in (rows, valid))
    p = (seen + 1) / (seen + 1).sum()
    return float(-(held_out * np.log(p)).sum() / held_out.sum())


def _count_words(rows: TokenRows, n_tokens: int) -> Longs:
    """How often each token occurs, except SEP and CLS, which are in every text and never predicted."""
    out: Longs = np.bincount(rows.ids, minlength=n_tokens)
    out[[SPECIAL_PIECES.index(SEP), SPECIAL_PIECES.index(CLS)]] = 0
    return out


def _save(encoder: XLNetEncoder, tokens: Tokens, folder: str | Path) -> None:
    """Write the folder so that the AutoModel and AutoTokenizer of transformers can read it, too."""
    config = encoder.model.config
    config.pad_token_id, config.bos_token_id, config.eos_token_id = SPECIAL_PIECES.index(PAD), None, None
    names: dict[str, Any] = {"pad_token": PAD, "unk_token": UNKNOWN, "sep_token": SEP, "cls_token": CLS}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": "left", "model_max_length": tokens.max_length}
    with quiet_transformers(), create_folder(folder) as temporary:
        encoder.model.save_pretrained(temporary)
        tokens.tokenizer.save(str(temporary / "tokenizer.json"))
        (temporary / "tokenizer_config.json").write_text(json.dumps(names, indent=1) + "\n", "utf-8")
