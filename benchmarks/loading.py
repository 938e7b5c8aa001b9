"""Loading a saved model and its first prediction: CPU seconds with and without the checks of its structure.

Without them means that ``check_array`` and its relatives return what they are given. Hashes are compared in both cases.

    python benchmarks/loading.py --corpora debian-debtags --methods plt ovr
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import MB, Row, make_parser, print_progress, read_corpus, report

import longtail


@contextmanager
def skip_checks() -> Iterator[None]:
    """Replace the checks of arrays in all modules by functions that check nothing."""

    def get(state: Any, name: str, *stated: Any, **limits: Any) -> Any:
        return state[name]

    def read(state: Any, name: str, low: float, high: float, at: int = 0) -> Any:
        return state[name][at].item()

    modules = [module for name, module in sys.modules.items() if name.startswith("longtail.")]
    replaced: dict[str, Callable[..., Any]] = {"check_array": get, "check_lengths": get}
    replaced |= {"check_number": read, "check_count": read}
    before = [(module, name, getattr(module, name)) for module in modules for name in replaced if hasattr(module, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, replaced[name])
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def measure(folder: Path, text: str) -> tuple[float, float]:
    """CPU seconds of loading, and of loading and predicting the labels of one text."""
    start = time.process_time()
    tagger = longtail.load(folder)
    loaded = time.process_time() - start
    tagger.predict([text])
    return loaded, time.process_time() - start


def compare(corpus: str, method: str, repeat: int) -> Row:
    """Train a model, and measure it alternately with and without checks; the best of each counts."""
    data = read_corpus(corpus)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        longtail.Tagger(method).fit(data).save(folder)
        print_progress(f"trained {method} on {corpus}")
        size = sum(path.stat().st_size for path in folder.iterdir())
        text = (data.texts or [""])[0]
        measure(folder, text)  # kernels are compiled
        checked, unchecked = [], []
        for _ in range(repeat):
            checked.append(measure(folder, text))
            with skip_checks():
                unchecked.append(measure(folder, text))
    load, both = (min(times) for times in zip(*checked, strict=True))
    both_less = min(time for _, time in unchecked)
    return {
        **{"corpus": corpus, "method": method, "labels": len(data.labels), "MB": size / MB},
        **{"load, CPU ms": 1e3 * load, "load and predict, CPU ms": 1e3 * both},
        **{"without checks": 1e3 * both_less, "cost of checks, %": 100 * (both / both_less - 1)},
    }


def main() -> None:
    parser = make_parser(__doc__, repeat=15)
    parser.add_argument("--corpora", nargs="+", default=["debian-debtags"])
    parser.add_argument("--methods", nargs="+", default=["plt", "ovr"])
    arguments = parser.parse_args()
    rows = [compare(corpus, method, arguments.repeat) for corpus in arguments.corpora for method in arguments.methods]
    report({"loading": rows}, [], arguments.json)


if __name__ == "__main__":
    main()
