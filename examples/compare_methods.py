"""Let longtail propose a method, compare several on the same data, and blend two of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import longtail


def main() -> None:
    """Compare linear methods on a part of the built-in corpus."""
    data = longtail.read("builtin:pydoc")
    data = data.take(np.random.default_rng(0).permutation(data.n_samples)[:3000])
    train, test = longtail.split(data, test=0.2)

    plan = longtail.choose(train, minutes=1)
    print(plan, "->", plan.proposed.spec)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report"  # holds the models, results.json and a page, index.html
        result = longtail.compare(train, test, ["popularity", "ovr", "wide=plt+beam=50"], out=out, progress=False)
        for one in result.results:
            low, high = one.intervals["P@1"]
            print(f"{one.name:12} P@1 {one.values['P@1']:.1f} ({low:.1f} to {high:.1f}), {one.costs['size']:.2f} MB")

        # The weights of a blend must be learned on data that its members were not trained on.
        valid, rest = longtail.split(test, test=0.5)
        members = [longtail.load(out / "models" / name) for name in ("ovr", "wide")]
        print(longtail.blend(members, valid).evaluate(rest))


if __name__ == "__main__":
    main()
