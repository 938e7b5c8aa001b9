"""Does pretraining on the texts of the corpus help? ``aplc`` with a small XLNet from scratch, with and without it.

The XLNet is pretrained on all training texts of reuters21578-modapte (without their labels), then fine-tuned on all of them,
or on 1,000 drawn at random: pretraining is for many texts and few labels. Evaluated once on ``test``; rates were chosen on a
fifth of the training texts, training on 1,000 others. One thread, seed 0, each step in a separate process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report
from peers import LIMITS, run

CORPUS = "reuters21578-modapte"
SIZES = {"width": 128, "layers": 2, "n_pieces": 8000}
MAX_LENGTH = 64  # tokens of a text that are read
N_FEW = 1000  # texts with labels, in the second part
EPOCHS = {"pretraining": 6, "all": 6, "few": 20}
RATES = {"from scratch": 1e-3, "pretrained": 3e-4}  # each the best of three, on held-out training texts


def pretrain(folder: str) -> Row:
    """Pretrain on all training texts."""
    from longtail.nn.pretraining import pretrain

    texts, epochs = read_corpus(CORPUS).texts or (), EPOCHS["pretraining"]
    with Stopwatch() as watch:
        done = pretrain(texts, folder, **SIZES, max_length=MAX_LENGTH, epochs=epochs, threads=1)
    losses = {"loss before": done.loss_before, "after": done.loss, "by word frequencies": done.unigram_loss}
    return {"texts": done.n_texts, "epochs": epochs, **losses, "CPU-s": watch.cpu}


def measure(method: str, n_texts: int | None, **settings: str | float) -> Row:
    """Train a method on some texts, and evaluate it on test."""
    from longtail import Tagger

    train, test = read_corpus(CORPUS), read_corpus(CORPUS, "test")
    if n_texts is not None:
        train = train.take(np.sort(np.random.default_rng(0).permutation(train.n_samples)[:n_texts]))
    with Stopwatch() as watch:
        tagger = Tagger(method, threads=1, **settings).fit(train)
    values = tagger.evaluate(test).values
    return {"texts": train.n_samples, **{f"P@{k}": values[f"P@{k}"] for k in (1, 3, 5)}, "CPU-s": watch.cpu}


def main() -> None:
    """Run and print."""
    given = make_parser(__doc__, repeat=None).parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows = []
    with tempfile.TemporaryDirectory() as above:
        folder = str(Path(above) / "encoder")
        print_progress("pretraining")
        losses = run("longtail", pretrain, env=one_thread, folder=folder).result
        for labelled, n_texts in (("few", N_FEW), ("all", None)):
            for name, encoder in (("from scratch", {"encoder": "xlnet", **SIZES}), ("pretrained", {"encoder": folder})):
                print_progress(f"{labelled} labelled texts, {name}")
                settings = {**encoder, "max_length": MAX_LENGTH, "epochs": EPOCHS[labelled], "rate": RATES[name]}
                done = run("longtail", measure, env=one_thread, method="aplc", n_texts=n_texts, **settings)
                rows.append({"method": f"aplc, xlnet {name}", "epochs": EPOCHS[labelled], **done.result})
            done = run("longtail", measure, env=one_thread, method="plt", n_texts=n_texts)
            rows.append({"method": "plt, whole texts", "epochs": "", **done.result})
    notes = [
        f"{CORPUS}; XLNet of {SIZES['layers']} layers, dimension {SIZES['width']}; the first {MAX_LENGTH} tokens of a text",
        "Losses: nats per predicted word of held-out training texts; P@k on test; one thread, seed 0",
        "CPU-s of fine-tuning do not include those of pretraining",
    ]
    report({"Pretraining": [losses], "With labels": rows}, notes, given.json)


if __name__ == "__main__":
    main()
