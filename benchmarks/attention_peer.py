"""LightAttention compared with LibMultiLabel's networks with label attention: CPU seconds per epoch, and P@1 after the same
number of epochs.

1,000 training texts of reuters21578-modapte, all of its test texts; one thread; random word vectors for both. LibMultiLabel
has the layer sizes of its own examples, longtail its defaults: two networks for the same task, not the same network twice.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from common import Row, Stopwatch, make_parser, print_progress, read_corpus, report
from peers import LIMITS, run

CORPUS, N_TRAIN, EPOCHS, MAX_LENGTH, BATCH = "reuters21578-modapte", 1000, 10, 200, 32
N_TIMED_BATCHES = 4  # of AttentionXML_0, which is too slow to train
NETWORKS: dict[str, dict[str, Any]] = {
    "BiLSTMLWAN": {"embed_dropout": 0.2, "encoder_dropout": 0, "post_encoder_dropout": 0, "rnn_dim": 512, "rnn_layers": 1},
    "AttentionXML_0": {
        **{"embed_dropout": 0.2, "encoder_dropout": 0.5, "post_encoder_dropout": 0, "rnn_dim": 1024, "rnn_layers": 1},
        "linear_size": [512, 256],
    },
}


def measure_longtail(n_train: int, epochs: int) -> Row:
    """Measure longtail. The time of an epoch includes its share of everything else in training."""
    import longtail

    train, test = read_corpus(CORPUS), read_corpus(CORPUS, "test")
    train = train.take(np.sort(np.random.default_rng(0).permutation(train.n_samples)[:n_train]))
    settings: dict[str, Any] = {"epochs": epochs, "max_length": MAX_LENGTH, "holdout": 0, "threads": 1}
    with Stopwatch() as training:
        tagger = longtail.Tagger("lightattention", **settings).fit(train)
    return {"CPU-s per epoch": training.cpu / epochs, "P@1": tagger.evaluate(test).values["P@1"]}


def measure_libmultilabel(
    network: str, config: Row, train: list[Any], test: list[Any], epochs: int, batches: int | None
) -> Row:
    """Measure LibMultiLabel: its data loaders, its network, and Adam.

    :param batches: Train only on this many batches per epoch, to measure the time. None: on all.
    """
    import pandas as pd  # type: ignore[import-untyped]
    import torch
    from libmultilabel.nn import data_utils, nn_utils  # type: ignore[import-not-found]

    nn_utils.set_seed(0)
    frames = [
        pd.DataFrame({"label": [" ".join(labels) for _, labels in split], "text": [text for text, _ in split]})
        for split in (train, test)
    ]
    data = data_utils.load_datasets(*frames, val_size=1, tokenize_text=True)
    classes = data_utils.load_or_build_label(data)
    specials = [data_utils.PAD, data_utils.UNK]
    words = data_utils._build_word_dict([sample["text"] for sample in data["train"]], min_vocab_freq=2, specials=specials)
    words = words[0] if isinstance(words, tuple) else words
    device = nn_utils.init_device(use_cpu=True)

    def loader(split: str, shuffle: bool) -> Any:
        options = {"max_seq_length": MAX_LENGTH, "batch_size": BATCH, "data_workers": 0, "word_dict": words}
        return data_utils.get_dataset_loader(data[split], classes, device, shuffle=shuffle, **options)

    metrics = {"monitor_metrics": ["P@1"], "val_metric": "P@1", "silent": True}
    vectors = torch.randn(len(words), 300) * 0.1
    net = nn_utils.init_model(network, config, classes, embed_vecs=vectors, learning_rate=1e-3, **metrics).network
    adam, seconds = torch.optim.Adam(net.parameters(), 1e-3), []

    def logits(batch: Any) -> Any:
        out = net(batch)
        return out["logits"] if isinstance(out, dict) else out

    for _ in range(epochs):
        net.train()
        start, n_done = time.process_time(), 0
        for batch in loader("train", True):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits(batch), batch["label"].float())
            adam.zero_grad()
            loss.backward()
            adam.step()
            n_done += len(batch["label"])
            if batches is not None and n_done >= batches * BATCH:
                break
        seconds.append((time.process_time() - start) * len(train) / n_done)
    if batches is not None:
        return {"CPU-s per epoch": float(np.median(seconds)), "P@1": ""}
    net.eval()
    n_correct = 0.0
    with torch.no_grad():
        for batch in loader("test", False):
            first = logits(batch).argmax(1)
            n_correct += float(batch["label"].gather(1, first[:, None]).sum())
    return {"CPU-s per epoch": float(np.median(seconds)), "P@1": 100 * n_correct / len(test)}


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of each network (%(default)s)")
    given = parser.parse_args()
    splits = []
    for split in ("train", "test"):
        data = read_corpus(CORPUS, split)
        names = [[data.labels.names[j].replace(" ", "_") for j in data.Y[i : i + 1].indices] for i in range(data.n_samples)]
        splits.append([[text, labels] for text, labels in zip(data.texts or [], names, strict=True)])
    rows = np.sort(np.random.default_rng(0).permutation(len(splits[0]))[:N_TRAIN])
    train, test = [splits[0][i] for i in rows], splits[1]
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    table: list[Row] = []
    first = run("longtail", measure_longtail, env=one_thread, n_train=N_TRAIN, epochs=given.epochs)
    table.append({"system": "longtail lightattention", **first.result, "peak MB": first.peak})
    for network, config in NETWORKS.items():
        print_progress(network)
        is_slow = network == "AttentionXML_0"
        length = {"epochs": 1, "batches": N_TIMED_BATCHES} if is_slow else {"epochs": given.epochs, "batches": None}
        job = {"network": network, "config": config, "train": train, "test": test, **length}
        done = run("libmultilabel-nn", measure_libmultilabel, env=one_thread, **job)
        table.append({"system": f"LibMultiLabel {network}", **done.result, "peak MB": done.peak})
    for row in table:
        row["times longtail's"] = row["CPU-s per epoch"] / table[0]["CPU-s per epoch"]
    notes = [
        f"{N_TRAIN:,} training texts, {given.epochs} epochs, one thread, seed 0",
        f"AttentionXML_0: {N_TIMED_BATCHES} batches only, to measure the time",
    ]
    report({"Label attention": table}, notes, given.json)


if __name__ == "__main__":
    main()
