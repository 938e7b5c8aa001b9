"""Train a tagger on texts, evaluate it, predict labels, explain one, save and load."""

from __future__ import annotations

import tempfile
from pathlib import Path

import longtail


def main() -> None:
    """Which parameters does a Python function have, judging by its documentation?"""
    train, test = longtail.split("builtin:pydoc", test=0.2)
    print(longtail.check(train, test))

    tagger = longtail.Tagger("ovr").fit(train, progress=False)
    print(tagger.evaluate(test))

    text = "Return the maximum of an array or maximum along an axis."
    for label, score, _ in tagger.predict([text], k=3)[0]:
        words = ", ".join(f"{word} {weight:+.2f}" for word, weight in tagger.explain(text, label).words[:3])
        print(f"{label:10} {score:6.2f}  because of {words}")

    with tempfile.TemporaryDirectory() as folder:
        tagger.save(Path(folder) / "model")
        again = longtail.load(Path(folder) / "model")
        assert again.predict([text]) == tagger.predict([text])


if __name__ == "__main__":
    main()
