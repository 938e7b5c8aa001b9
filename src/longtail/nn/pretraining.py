"""Domain pretraining from scratch: texts, whose labels are not looked at, to a folder with an XLNet that has read them.

The folder is in the form of transformers (config.json, model.safetensors, tokenizer.json); ``aplc`` takes it as its encoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.errors import BIG, DataError, SettingError, check_settings
from longtail.features.batches import length_batches
from longtail.features.pretrained import text_settings
from longtail.features.token_rows import TokenRows
from longtail.features.tokens import CLS, PAD, SEP, SPECIALS, UNKNOWN, Tokens
from longtail.files import check_new_folder, new_folder
from longtail.kernels import Longs
from longtail.nn.encoders import XLNet, quiet, scratch
from longtail.nn.loop import device_of, plan_of, torch_threads, train
from longtail.nn.permutation_lm import ENDS, PermutationLM, drawn
from longtail.nn.schedule import schedule as schedule_of
from longtail.progress import SILENT, Progress

MOST_HELD_OUT = 1000  # texts; more tell no more
FEWEST = 2 + ENDS  # tokens of a text that can be learned from: a word to predict, one to predict it from, SEP and CLS


@dataclass(frozen=True)
class Pretrained:
    """What came of it. Losses are means of −log p of the predicted words of held-out texts, in nats."""

    before: float
    after: float
    frequencies: float  # the loss of one who knows only how often each word occurs
    n_texts: int
    n_tokens: int  # different ones
    history: list[dict[str, float]]  # one row for each epoch


def pretrain(
    texts: Sequence[str],
    folder: str | Path,
    *,
    width: int = 256,
    layers: int = 2,
    max_length: int = 256,
    n_pieces: int | None = None,
    rate: float = 1e-3,
    batch: int = 32,
    epochs: int = 10,
    schedule: str = "warm-linear",
    clip: float = 1.0,
    holdout: float = 0.05,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    log: str | None = None,
    checkpoint: str | None = None,
    progress: Progress = SILENT,
) -> Pretrained:
    """Learn word pieces and an XLNet from texts, and write both to a new folder.

    width, layers: of the XLNet. max_length: tokens of a text that are read. n_pieces: word pieces that are learned; by
    default one for each word that occurs twice, 32,000 at most. rate: of Adam. batch: texts of a step. schedule: of rates.
    clip: longest gradient. holdout: share of the texts that only measure; the weights of the epoch that predicts them best
    are kept. log, checkpoint: files, as of the methods; a killed run goes on from its checkpoint.
    """
    s = SimpleNamespace(width=width, layers=layers, max_length=max_length, rate=rate, batch=batch, epochs=epochs, seed=seed)
    vars(s).update(schedule=schedule, clip=clip, holdout=holdout, log=log, checkpoint=checkpoint)
    refuse(s)
    check_new_folder(Path(folder))  # before hours of training
    place = device_of(device)
    tokens = Tokens(**text_settings("xlnet"), max_length=max_length, n_pieces=n_pieces)
    rows, valid = parts(tokens.fit_transform(texts, progress), holdout, seed)
    torch.manual_seed(seed)
    encoder = scratch("xlnet", tokens.n_tokens, width, layers)
    assert isinstance(encoder, XLNet)
    net = PermutationLM(encoder, tokens.n_tokens).to(place)

    def batches(rng: np.random.Generator) -> list[Longs]:
        return length_batches(rows.lengths, rng, batch=batch)

    def loss(some: Longs) -> Tensor:
        ids, mask = encoder.batch(rows[some])
        return net.loss(ids, mask, drawn(mask)).mean()

    steps = len(batches(np.random.default_rng(0)))
    plan = plan_of(s, steps, (rows.ids, rows.indptr, valid.ids, valid.indptr))
    with torch_threads(threads):
        before = held_out_loss(net, valid, batch)
        optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.0)
        run = train(net, batches, loss, optimizer, plan, metric=lambda: -held_out_loss(net, valid, batch), progress=progress)
    write(encoder, tokens, folder)
    known = frequency_loss(rows, valid, tokens.n_tokens)
    return Pretrained(before, -run.best, known, len(rows) + len(valid), tokens.n_tokens, run.history)


def refuse(s: SimpleNamespace) -> None:
    """Refuse what cannot be, before the texts are read."""
    whole = ("batch", "epochs", "width", "layers", "max_length")
    at_most = {"holdout": 0.5, "clip": BIG}
    check_settings(vars(s), above_zero=("batch", "epochs", "rate", "holdout"), at_most=at_most, whole=whole)
    if s.max_length < FEWEST:
        raise SettingError(f"max_length is {s.max_length}", hint=f"It must be at least {FEWEST}")
    schedule_of(s.schedule)
    scratch("xlnet", len(SPECIALS), s.width, s.layers)


def parts(rows: TokenRows, holdout: float, seed: int) -> tuple[TokenRows, TokenRows]:
    """Texts to learn from, and those held out; texts too short to predict a word of are left out."""
    enough = np.flatnonzero(rows.lengths >= FEWEST)
    if len(enough) < 2:
        found = f"{len(enough)} of the {len(rows)} texts have two words or more"
        raise DataError(found, hint="Pretraining needs two such texts at least, and is of use with thousands")
    mixed = np.random.default_rng(seed).permutation(enough)
    n = min(max(round(holdout * len(enough)), 1), MOST_HELD_OUT)
    return rows[np.sort(mixed[n:])], rows[np.sort(mixed[:n])]


@torch.no_grad()
def held_out_loss(net: PermutationLM, rows: TokenRows, batch: int) -> float:
    """The mean loss of predicted words, in orders that are the same each time."""
    net.eval()
    generator = torch.Generator().manual_seed(0)
    losses = []
    for some in length_batches(rows.lengths, np.random.default_rng(0), batch=batch):
        ids, mask = net.encoder.batch(rows[some])
        losses.append(net.loss(ids, mask, drawn(mask, generator)))
    return float(torch.cat(losses).mean())


def frequency_loss(rows: TokenRows, valid: TokenRows, n_tokens: int) -> float:
    """The mean −log p of the words of held-out texts, by how often each occurs in the others (and once more)."""
    seen, asked = (word_counts(some, n_tokens) for some in (rows, valid))
    p = (seen + 1) / (seen + 1).sum()
    return float(-(asked * np.log(p)).sum() / asked.sum())


def word_counts(rows: TokenRows, n_tokens: int) -> Longs:
    """How often each token occurs, but for SEP and CLS, which stand at the end of each text and are not predicted."""
    out: Longs = np.bincount(rows.ids, minlength=n_tokens)
    out[[SPECIALS.index(SEP), SPECIALS.index(CLS)]] = 0
    return out


def write(encoder: XLNet, tokens: Tokens, folder: str | Path) -> None:
    """The folder, as transformers reads it: its AutoModel and AutoTokenizer know the model too."""
    config = encoder.model.config
    config.pad_token_id, config.bos_token_id, config.eos_token_id = SPECIALS.index(PAD), None, None
    names: dict[str, Any] = {"pad_token": PAD, "unk_token": UNKNOWN, "sep_token": SEP, "cls_token": CLS}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "padding_side": "left", "model_max_length": tokens.max_length}
    with quiet(), new_folder(folder) as beside:
        encoder.model.save_pretrained(beside)
        tokens.tokenizer.save(str(beside / "tokenizer.json"))
        (beside / "tokenizer_config.json").write_text(json.dumps(names, indent=1) + "\n", "utf-8")
