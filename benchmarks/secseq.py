"""SeCSeq beside label trees on real texts: sequences with one tree and four, mlc2seq, and our own.

Trained on ``train``, measured once on ``test``; nothing is chosen there. One thread, seed 0, each in its own process; rows
are printed as they come, sequences decoded in three ways. The paper's network is far too slow for a CPU: sequences are
written from a bag of words, as in the variant RNN-M of mlc2seq, and with 256 numbers in place of 1,024. ``--method "GRU, M =
1"`` is a small version of the whole network (128 numbers, 100 word pieces), which takes hours and is run only if named.
``--slice N`` takes only the first N training and N / 4 test texts of corpora that are larger; rows say how many.
``--parameters`` prints only how the output side grows with the labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import MB, Row, Stopwatch, arguments, corpus, markdown, median_ms, note, report, saved
from peers import LIMITS, run

CORPORA = ("reuters21578-modapte", "debian-debtags", "finna-yso-en")
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
N_SINGLE = 100  # texts that are predicted one by one
SEQUENCE: dict[str, Any] = {
    **{"method": "secseq", "target": "sequence", "coding": "random", "embedding": "indicator"},
    **{"decoding": "best", "beam": 5, "epochs": 12, "patience": 3},
}
METHODS: dict[str, dict[str, Any]] = {
    "plt": {"method": "plt"},
    "secseq, M = 1": SEQUENCE,
    "secseq, M = 4": {**SEQUENCE, "n_trees": 4},
    "mlc2seq": {**SEQUENCE, "depth": 1},
    "secseq, ours": {"method": "secseq"},
}
# on the trained networks: the paper's, all beams by their probability, and the probability of a code
DECODINGS = ({"decoding": "best"}, {"decoding": "beams", "constrained": True}, {"decoding": "direct"})
SLOW: dict[str, dict[str, Any]] = {
    "GRU, M = 1": {
        **{"method": "secseq", "preset": "paper", "decoding": "best", "n_trees": 1},
        **{"width": 128, "token_width": 128, "hidden": 128},
        **{"symbol_width": 128, "max_length": 100, "n_pieces": 20_000, "rate": 0.002, "head_rate": 0.002},
    }
}
LABELS = (600, 25_000, 250_000, 1_000_000)


def measure(name: str, method: str, part: int | None, **settings: Any) -> list[Row]:
    """Train, save, load and evaluate one method on one corpus; sequences by several ways of decoding."""
    import longtail

    train, test = corpus(name), corpus(name, "test")
    if part and part < train.n_samples:
        train, test = train.take(np.arange(part)), test.take(np.arange(min(part // 4, test.n_samples)))
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, seed=0, **settings).fit(train)
    epochs = [row["seconds"] for history in getattr(tagger.model, "histories", []) for row in history]
    tagger, n_mb = saved(tagger)
    sizes = {name: array.nbytes / MB for name, array in tagger.model.state().items()}
    words = sum(size for name, size in sizes.items() if "bag." in name or "table" in name or "features." in name)
    leaves = sum(size for name, size in sizes.items() if name.endswith((".symbols", ".prior")) or name == "label_counts")
    ours = method == "secseq"
    same = {
        "texts": train.n_samples,
        "train CPU-s": training.cpu,
        "s an epoch": float(np.mean(epochs)) if epochs else "",
        "model MB": n_mb,
        "without words": sum(sizes.values()) - words if ours else "",
        "nor leaves": sum(sizes.values()) - words - leaves if ours else "",
    }
    rows = []
    for decoding in DECODINGS if "decoding" in settings else [{}]:
        tagger.model.set_params(**decoding)
        values = tagger.evaluate(test).values
        latency = median_ms(lambda i: tagger.topk([test.texts[i]], 5), min(N_SINGLE, test.n_samples))  # type: ignore[index]
        accuracy = {metric: values[metric] for metric in SHOWN}
        rows.append({"decoding": decoding.get("decoding", ""), **accuracy, **same, "ms a text": latency})
    return rows


def output_side(n_labels: int) -> Row:
    """What all but the encoder has for numbers, and the codes and counts of labels, by the number of synthetic labels."""
    from types import SimpleNamespace

    import torch

    from longtail.models.secseq.codes import learned_codes, random_codes, size_of_codes
    from longtail.models.secseq.model import SecSeq
    from longtail.models.secseq.network import Seq2Seq, Words
    from longtail.models.secseq.set_network import SetNetwork

    counts = np.maximum(100_000 / np.arange(1, n_labels + 1), 1).astype(np.int32)
    V = np.random.default_rng(0).standard_normal((n_labels, 16)).astype(np.float32)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    out: Row = {"labels": n_labels}
    for title, preset in (("secseq, paper's", "paper"), ("mlc2seq", "mlc2seq"), ("secseq, ours", "best")):
        s = SimpleNamespace(**SecSeq(**SecSeq.preset(preset)).get_params())
        learned = s.coding == "learned"
        K, D = size_of_codes(n_labels, learned=learned, n_symbols=s.symbols, depth=s.depth)
        codes = (learned_codes if learned else random_codes)(V, counts, n_symbols=K, depth=D)
        with torch.device("meta"):  # sizes only
            encoder = Words(1, s.width)
            net = (SetNetwork if s.target == "set" else Seq2Seq)(encoder, K, D, s)
        n = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("encoder."))
        shared = codes.statistics()["labels of a code"]
        out |= {f"{title}: K, D": f"{K:,}, {D}", f"{title}: parameters": n, f"{title}: labels of a code": shared}
    return out


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one; may be given again")
    parser.add_argument("--method", action="append", choices=[*METHODS, *SLOW], help="only this one; may be given again")
    parser.add_argument("--slice", type=int, metavar="N", help="only the first N training texts of larger corpora")
    parser.add_argument("--parameters", action="store_true", help="only the size of the output side by number of labels")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    rows: list[Row] = []
    for name in () if given.parameters else given.corpus or CORPORA:
        for title in given.method or METHODS:
            note(f"{name}: {title}")
            done = run("longtail", measure, env=one_thread, name=name, part=given.slice, **{**METHODS, **SLOW}[title])
            new = [{"corpus": name, "method": title, **row, "peak MB": done.peak} for row in done.result]
            note(markdown(new))
            rows += new
    sizes = []
    for n_labels in LABELS:
        sizes.append(run("longtail", output_side, env=one_thread, n_labels=n_labels).result)
        note(markdown(sizes[-1:]))
    notes = [f"One thread, seed 0; ms a text: median of {N_SINGLE}, from raw text, one by one, k = 5"]
    if given.slice:
        notes.append(f"Of corpora with more, the first {given.slice:,} training and {given.slice // 4:,} test texts")
    report({**({"SeCSeq": rows} if rows else {}), "Output side": sizes}, notes, given.json)


if __name__ == "__main__":
    main()
