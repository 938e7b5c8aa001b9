"""The settings of SeCSeq that depend on the data; how long codes are, and of how many symbols, by the number of labels."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.nn.settings import TrainingPlan

_CODES_PER_LABEL = 16  # of random codes; with fewer, too many labels share a code
_MIN_RANDOM_SYMBOLS, _MIN_RANDOM_DEPTH = 64, 3
_LEARNED_SYMBOLS = (256, 512, 1024)  # of learned codes of two or more symbols
_LABELS_PER_CODE = 1 / 4  # of learned codes: first symbols stand for small groups of labels, which are easier to tell apart


@dataclass(frozen=True, kw_only=True)
class SecSeqPlan(TrainingPlan):
    """The settings that depend on the data, with their values filled in."""

    n_symbols: int  # K
    depth: int  # D
    n_trees: int  # M
    sparse_part: bool


def choose_code_size(
    n_labels: int, *, learned: bool = False, n_symbols: int | None = None, depth: int | None = None
) -> tuple[int, int]:
    """Choose K and D by the number of labels; what is given is kept.

    Random codes: K^D is at least 16 times the number of labels, starting at K = 64 and D = 3. ``depth=1`` alone gives each
    label its own symbol, as in mlc2seq. Learned codes: each label has its own symbol up to 256 labels; for more labels,
    K is 256 to 1,024, D as small as possible, and a quarter of all codes is used, or less.

    >>> [choose_code_size(n) for n in (600, 25_000, 1_000_000)], choose_code_size(600, depth=1)
    ([(64, 3), (128, 3), (256, 3)], (600, 1))
    >>> [choose_code_size(n, learned=True) for n in (100, 600, 36_000, 1_000_000)]
    [(128, 1), (256, 2), (1024, 2), (256, 3)]
    """
    if learned:
        return _choose_learned_size(n_labels, n_symbols, depth)
    if depth == 1 and n_symbols is None:
        return n_labels, 1
    K, D = n_symbols or _MIN_RANDOM_SYMBOLS, depth or _MIN_RANDOM_DEPTH
    min_codes = _CODES_PER_LABEL * n_labels
    while min_codes > K**D and not n_symbols:
        K *= 2
    while min_codes > K**D and not depth and K > 1:
        D += 1
    return K, D


def _choose_learned_size(n_labels: int, n_symbols: int | None, depth: int | None) -> tuple[int, int]:
    K, D = n_symbols or 2, depth or 1
    while count_learned_codes(K, D) < n_labels and not n_symbols and (_LEARNED_SYMBOLS[0] > K or depth):
        K *= 2
    while count_learned_codes(K, D) < n_labels and not depth and K > 1:
        D += 1
        if not n_symbols:
            enough = [k for k in _LEARNED_SYMBOLS if count_learned_codes(k, D) >= n_labels]
            roomy = [k for k in enough if _LABELS_PER_CODE * count_learned_codes(k, D) >= n_labels]
            K = roomy[0] if roomy else enough[-1] if enough else _LEARNED_SYMBOLS[0]
    return K, D


def count_learned_codes(n_symbols: int, depth: int) -> int:
    """Number of labels that learned codes of this size can distinguish.

    With D > 1, half of the first symbols belong to one frequent label each, the other half start all other codes.
    """
    return n_symbols if depth == 1 else n_symbols // 2 * (1 + n_symbols ** (depth - 1))
