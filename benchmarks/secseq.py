"""SeCSeq and label trees on real texts: sequences with one tree and with four, mlc2seq, and our set network.

Trained on ``train``, measured once on ``test``; no setting is chosen there. One thread, one process per method and seed.
Rows are printed as they are measured; sequence networks are decoded in three ways. With ``--seeds N``, figures are means
over seeds, and the spread of P@1 is the largest minus the smallest. The paper's network is far too slow for a CPU: here the
decoder reads a bag of words, as in the variant RNN-M of mlc2seq, and has 256 hidden units in place of 1,024.

``--method "GRU, M = 1"`` is a small version of the whole network (128 hidden units, the first 100 word pieces). It takes
hours and runs only if it is named. ``--slice N`` draws N training and N / 4 test texts of larger corpora.
``--parameters`` only prints how the output layer grows with the labels. ``--steps`` only compares a step of the decoder in
numpy, which prediction uses, with one in torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from common import (
    MB,
    Row,
    Stopwatch,
    draw_rows,
    format_markdown,
    make_parser,
    print_progress,
    read_corpus,
    report,
    save_and_load,
    time_median_ms,
)
from peers import LIMITS, run

CORPORA = ("reuters21578-modapte", "debian-debtags", "finna-yso-en")
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
N_SINGLE = 100  # texts that are predicted one by one, for the latency
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
# of trained sequence networks: the paper's, all beams by their probability, and the probability of a code
DECODINGS = ({"decoding": "best"}, {"decoding": "beams", "constrained": True}, {"decoding": "direct"})
SLOW_METHODS: dict[str, dict[str, Any]] = {
    "GRU, M = 1": {
        **{"method": "secseq", "preset": "paper", "decoding": "best", "n_trees": 1},
        **{"width": 128, "token_width": 128, "hidden": 128},
        **{"symbol_width": 128, "max_length": 100, "n_pieces": 20_000, "rate": 0.002, "head_rate": 0.002},
    }
}
LABEL_NUMBERS = (600, 25_000, 250_000, 1_000_000)
STEP_HIDDEN = (256, 1024)  # hidden units for which steps are timed
N_STEPS = 1000


def measure(name: str, method: str, part: int | None, seed: int, **settings: Any) -> list[Row]:
    """Train, save, load and evaluate one method on one corpus; sequence networks with several decodings."""
    import longtail

    train, test = read_corpus(name), read_corpus(name, "test")
    if part and part < train.n_samples:
        train, test = (
            train.take(draw_rows(train.n_samples, part)),
            test.take(draw_rows(test.n_samples, min(part // 4, test.n_samples))),
        )
    with Stopwatch() as training:
        tagger = longtail.Tagger(method, threads=1, seed=seed, **settings).fit(train)
    epochs = [row["seconds"] for history in getattr(tagger.model, "histories", []) for row in history]
    tagger, n_mb = save_and_load(tagger)
    sizes = {name: array.nbytes / MB for name, array in tagger.model.state().items()}
    words = sum(size for name, size in sizes.items() if "bag." in name or "table" in name)
    leaves = sum(size for name, size in sizes.items() if name.endswith((".symbols", ".prior")) or name == "label_counts")
    is_secseq = method == "secseq"
    same = {
        "texts": train.n_samples,
        "train CPU-s": training.cpu,
        "s per epoch": float(np.mean(epochs)) if epochs else "",
        "model MB": n_mb,
        "without words": sum(sizes.values()) - words if is_secseq else "",
        "without words and leaves": sum(sizes.values()) - words - leaves if is_secseq else "",
    }
    rows = []
    single = test.take(draw_rows(test.n_samples, N_SINGLE)).texts or ()
    for decoding in DECODINGS if "decoding" in settings else [{}]:
        tagger.model.set_params(**decoding)
        values = tagger.evaluate(test).values
        latency = time_median_ms(lambda i: tagger.topk([single[i]], 5), len(single))
        accuracy = {metric: values[metric] for metric in METRICS}
        rows.append({"decoding": decoding.get("decoding", ""), **accuracy, **same, "ms per text": latency})
    return rows


def average_seeds(of_seeds: list[list[Row]]) -> list[Row]:
    """The mean of each figure over seeds, and the spread of P@1: the largest minus the smallest."""
    out = []
    for rows in zip(*of_seeds, strict=True):
        row = {
            name: value if isinstance(value, str) else float(np.mean([r[name] for r in rows]))
            for name, value in rows[0].items()
        }
        first = [r["P@1"] for r in rows]
        out.append({**row, "spread of P@1": max(first) - min(first)} if len(rows) > 1 else row)
    return out


def count_parameters(n_labels: int) -> Row:
    """Parameters of all layers but the encoder's, and how labels share codes, for synthetic labels."""
    import torch

    from longtail.models.secseq.codes import build_forest
    from longtail.models.secseq.model import SecSeq
    from longtail.models.secseq.network import WordsEncoder
    from longtail.models.secseq.training import make_network

    counts = np.maximum(100_000 / np.arange(1, n_labels + 1), 1).astype(np.int32)
    V = np.random.default_rng(0).standard_normal((n_labels, 16)).astype(np.float32)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    out: Row = {"labels": n_labels}
    for title, preset in (("secseq, paper's", "paper"), ("mlc2seq", "mlc2seq"), ("secseq, ours", "best")):
        settings = SecSeq(**{**SecSeq.preset(preset), "n_trees": 1})
        plan = settings.plan(n_samples=100_000, n_labels=n_labels)
        (codes,) = build_forest(V, counts, settings, plan)
        with torch.device("meta"):  # shapes without values
            net = make_network(settings, WordsEncoder(1, settings.get_width()), codes)
        n = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("encoder."))
        shared = codes.describe()["labels_per_code"]
        out |= {f"{title}: K, D": f"{plan.n_symbols:,}, {plan.depth}", f"{title}: parameters": n}
        out[f"{title}: labels per code"] = shared
    return out


def time_steps(hidden: int, n_trees: int) -> Row:
    """Microseconds of a step of the decoders of all trees, for one text and a beam of 5, without attention."""
    import torch

    from longtail.models.secseq.decoder import DecoderForest
    from longtail.models.secseq.network import Seq2Seq, WordsEncoder, encode_for_attention
    from longtail.models.secseq.training import export_network
    from longtail.state import extract_part

    beam, depth, width = 5, 3, 256
    nets = [Seq2Seq(WordsEncoder(width, width), 64, depth, hidden=hidden, symbol_width=256).eval() for _ in range(n_trees)]
    text = sp.csr_array(np.random.default_rng(0).random((1, width), np.float32))
    decoder = DecoderForest([extract_part(export_network(net), "net.") for net in nets], depth)
    with torch.no_grad():
        states, mask, vectors = (part.numpy() for part in encode_for_attention(nets[0].encoder, text))
        memories = [net.encode(text) for net in nets]
        memory = decoder.encode([(states, mask, vectors)] * n_trees)
        rows, symbols = np.repeat(np.arange(n_trees), beam), np.arange(beam)
        start, previous = memory.start[rows], np.tile(symbols, n_trees)
        in_numpy = time_median_ms(lambda i: decoder.step(memory, rows, start, previous, i % depth), N_STEPS)
        starts, last = [each.start[:, None].expand(-1, beam, -1) for each in memories], torch.from_numpy(symbols)[None]

        def step(i: int) -> None:
            for net, encoded, state in zip(nets, memories, starts, strict=True):
                net.step(encoded, state, last, i % depth)

        in_torch = time_median_ms(step, N_STEPS)
    times = {"numpy, µs": 1e3 * in_numpy, "torch, µs": 1e3 * in_torch}
    return {"hidden": hidden, "trees": n_trees, **times, "ratio": in_torch / in_numpy}


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=None)
    methods = {**METHODS, **SLOW_METHODS}
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this corpus; may be repeated")
    parser.add_argument("--method", action="append", choices=methods, help="only this method; may be repeated")
    parser.add_argument("--slice", type=int, metavar="N", help="only N random training texts of larger corpora")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method with different seeds (%(default)s)")
    parser.add_argument("--parameters", action="store_true", help="only the size of the output layer by number of labels")
    parser.add_argument("--steps", action="store_true", help="only the time of a decoder step, in numpy and in torch")
    given = parser.parse_args()
    one_thread = {f"{library}_NUM_THREADS": "1" for library in LIMITS}
    if given.steps:
        sizes = [(hidden, n_trees) for hidden in STEP_HIDDEN for n_trees in (1, 4)]
        steps = [run("longtail", time_steps, env=one_thread, hidden=h, n_trees=m).result for h, m in sizes]
        report({"Steps of the decoder": steps}, [f"One thread; median of {N_STEPS} steps"], given.json)
        return
    rows: list[Row] = []
    for name in () if given.parameters else given.corpus or CORPORA:
        for title in given.method or METHODS:
            print_progress(f"{name}: {title}")
            which = {"name": name, "part": given.slice, **methods[title]}
            done = [run("longtail", measure, env=one_thread, seed=seed, **which) for seed in range(given.seeds)]
            peak = max(each.peak for each in done)
            found = average_seeds([each.result for each in done])
            new = [{"corpus": name, "method": title, **row, "peak MB": peak} for row in found]
            print_progress(format_markdown(new))
            rows += new
    parameters = []
    for n_labels in LABEL_NUMBERS:
        parameters.append(run("longtail", count_parameters, env=one_thread, n_labels=n_labels).result)
        print_progress(format_markdown(parameters[-1:]))
    latency = f"; ms per text: median of {N_SINGLE} texts, one by one, k = 5, tokenisation included"
    notes = [f"One thread, seeds from 0: {given.seeds}{latency if rows else ''}"]
    if given.slice:
        notes.append(f"Of larger corpora, {given.slice:,} random training and {given.slice // 4:,} random test texts")
    report({**({"SeCSeq": rows} if rows else {}), "Output layer": parameters}, notes, given.json)


if __name__ == "__main__":
    main()
