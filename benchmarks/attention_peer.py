"""LightAttention beside LibMultiLabel's networks with label attention: CPU seconds an epoch, and P@1 after the same epochs.

1,000 training texts of reuters21578-modapte, all of its test texts; one thread; random word vectors for both. LibMultiLabel
has the widths of its own examples, longtail its defaults: two networks for the same task, not the same network twice.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from common import Row, Stopwatch, arguments, corpus, note, report
from peers import LIMITS, run

CORPUS, N_TRAIN, EPOCHS, LONGEST, BATCH = "reuters21578-modapte", 1000, 10, 200, 32
NETWORKS: dict[str, dict[str, Any]] = {
    "BiLSTMLWAN": {"embed_dropout": 0.2, "encoder_dropout": 0, "post_encoder_dropout": 0, "rnn_dim": 512, "rnn_layers": 1},
    "AttentionXML_0": {
        **{"embed_dropout": 0.2, "encoder_dropout": 0.5, "post_encoder_dropout": 0, "rnn_dim": 1024, "rnn_layers": 1},
        "linear_size": [512, 256],
    },
}


def ours(n_train: int, epochs: int) -> Row:
    """longtail's; an epoch with its share of all that training needs besides."""
    import longtail

    train, test = corpus(CORPUS), corpus(CORPUS, "test")
    train = train.take(np.sort(np.random.default_rng(0).permutation(train.n_samples)[:n_train]))
    settings: dict[str, Any] = {"epochs": epochs, "max_length": LONGEST, "holdout": 0, "threads": 1}
    with Stopwatch() as training:
        tagger = longtail.Tagger("lightattention", **settings).fit(train)
    return {"CPU-s an epoch": training.cpu / epochs, "P@1": tagger.evaluate(test).values["P@1"]}


def theirs(network: str, config: Row, train: list[Any], test: list[Any], epochs: int, batches: int | None) -> Row:
    """LibMultiLabel's: its data, its network, and Adam. With ``batches``, only so many for each epoch, for the time."""
    import pandas as pd  # type: ignore[import-untyped]
    import torch
    from libmultilabel.nn import data_utils, nn_utils  # type: ignore[import-not-found]

    nn_utils.set_seed(0)
    frames = [
        pd.DataFrame({"label": [" ".join(one[1]) for one in side], "text": [one[0] for one in side]})
        for side in (train, test)
    ]
    data = data_utils.load_datasets(*frames, val_size=1, tokenize_text=True)
    classes = data_utils.load_or_build_label(data)
    specials = [data_utils.PAD, data_utils.UNK]
    words = data_utils._build_word_dict([one["text"] for one in data["train"]], min_vocab_freq=2, specials=specials)
    words = words[0] if isinstance(words, tuple) else words
    device = nn_utils.init_device(use_cpu=True)

    def loader(side: str, shuffle: bool) -> Any:
        setting = {"max_seq_length": LONGEST, "batch_size": BATCH, "data_workers": 0, "word_dict": words}
        return data_utils.get_dataset_loader(data[side], classes, device, shuffle=shuffle, **setting)

    metrics = {"monitor_metrics": ["P@1"], "val_metric": "P@1", "silent": True}
    vectors = torch.randn(len(words), 300) * 0.1
    net = nn_utils.init_model(network, config, classes, embed_vecs=vectors, learning_rate=1e-3, **metrics).network
    adam, took = torch.optim.Adam(net.parameters(), 1e-3), []

    def logits(batch: Any) -> Any:
        out = net(batch)
        return out["logits"] if isinstance(out, dict) else out

    for _ in range(epochs):
        net.train()
        start, done = time.process_time(), 0
        for batch in loader("train", True):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits(batch), batch["label"].float())
            adam.zero_grad()
            loss.backward()
            adam.step()
            done += len(batch["label"])
            if batches is not None and done >= batches * BATCH:
                break
        took.append((time.process_time() - start) * len(train) / done)
    if batches is not None:
        return {"CPU-s an epoch": float(np.median(took)), "P@1": ""}
    net.eval()
    right = 0.0
    with torch.no_grad():
        for batch in loader("test", False):
            first = logits(batch).argmax(1)
            right += float(batch["label"].gather(1, first[:, None]).sum())
    return {"CPU-s an epoch": float(np.median(took)), "P@1": 100 * right / len(test)}


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of each (%(default)s)")
    given = parser.parse_args()
    sides = []
    for side in ("train", "test"):
        data = corpus(CORPUS, side)
        names = [[data.labels.names[j].replace(" ", "_") for j in data.Y[i : i + 1].indices] for i in range(data.n_samples)]
        sides.append([[text, of] for text, of in zip(data.texts or [], names, strict=True)])
    some = np.sort(np.random.default_rng(0).permutation(len(sides[0]))[:N_TRAIN])
    train = [sides[0][i] for i in some]
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    first = run("longtail", ours, env=one_thread, n_train=N_TRAIN, epochs=given.epochs)
    rows.append({"system": "longtail lightattention", **first.result, "peak MB": first.peak})
    for network, config in NETWORKS.items():
        note(network)
        short = {"epochs": 1, "batches": 4} if network == "AttentionXML_0" else {"epochs": given.epochs, "batches": None}
        given_to = {"network": network, "config": config, "train": train, "test": sides[1], **short}
        done = run("libmultilabel-nn", theirs, env=one_thread, **given_to)
        rows.append({"system": f"LibMultiLabel {network}", **done.result, "peak MB": done.peak})
    for row in rows:
        row["times longtail's"] = row["CPU-s an epoch"] / rows[0]["CPU-s an epoch"]
    notes = [
        f"{N_TRAIN:,} training texts, {given.epochs} epochs, one thread, seed 0; AttentionXML_0: four batches, for the time"
    ]
    report({"Label attention": rows}, notes, given.json)


if __name__ == "__main__":
    main()
