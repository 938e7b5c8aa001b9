"""Which methods to prefer on which data: rules, and the accuracy that the recipes recorded on corpora of that kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from longtail.recipes.recipe import read_recipe, recipe_paths
from longtail.selection.profile import Profile

_MANY_LABELS = 4096  # from here on networks no longer score all labels in each step
_FEW_SAMPLES = 10  # of the median label
_LONG_TEXT_WORDS = 200  # of the median text: Reuters has 86, manual pages 427


@dataclass(frozen=True)
class Rule:
    """A kind of data, and the corpora of that kind whose recipes rank the methods."""

    when: str
    applies: Callable[[Profile], bool]
    corpora: tuple[str, ...]
    corpora_title: str

    def ranking(self) -> dict[str, tuple[float, ...]]:
        """P@1 on each corpus, by spec, the highest mean first. Methods without a recipe on every corpus are left out."""
        found = recorded_precision()
        complete = {
            spec: tuple(by_corpus[name] for name in self.corpora)
            for spec, by_corpus in found.items()
            if all(name in by_corpus for name in self.corpora)
        }
        return dict(sorted(complete.items(), key=lambda pair: -sum(pair[1])))


RULES = (  # the first that applies
    Rule(
        f"long texts: the median one has more than {_LONG_TEXT_WORDS} words",
        lambda p: p.median_words > _LONG_TEXT_WORDS,
        ("manpages-seealso",),  # of 9,200 labels, so this comes before the rule for many labels
        "manual pages",
    ),
    Rule(
        "many thousands of labels",
        lambda p: p.n_labels > _MANY_LABELS,
        ("finna-yso-en", "gutenberg-lcsh"),
        "Finna records and Project Gutenberg",
    ),
    Rule(
        "few samples for most labels",
        lambda p: p.median_samples < _FEW_SAMPLES,
        ("builtin:pydoc",),
        "parameters of Python functions",
    ),
    Rule(
        "short texts, enough samples for most labels",
        lambda p: p.has_texts,
        ("debian-debtags", "reuters21578-modapte"),
        "package descriptions and Reuters",
    ),
    Rule(
        "feature vectors, enough samples for most labels",
        lambda p: True,
        ("delicious", "bibtex"),
        "delicious and bibtex",
    ),
)


@cache
def recorded_precision() -> dict[str, dict[str, float]]:
    """The P@1 that recipes expect: spec -> corpus -> P@1."""
    out: dict[str, dict[str, float]] = {}
    for path in recipe_paths():
        recipe = read_recipe(path)
        if "P@1" in recipe.expected:
            out.setdefault(str(recipe.method_spec), {})[recipe.corpus] = recipe.expected["P@1"]
    return out
