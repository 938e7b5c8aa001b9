"""Search of APLC: the top k of all probabilities, although tails are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.errors import DataError, SettingError
from longtail.kernels import Floats
from longtail.models.aplc import search as search_module
from longtail.models.aplc.search import ClusterSearch
from longtail.topk import TopK

D = 6
State = dict[str, NDArray[Any]]


def arrays(seed: int, sizes: list[int], cluster_scale: float = 1.0) -> State:
    """A head and tails of these sizes; labels are shuffled, and ascend within a cluster."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Floats:
        return random.standard_normal(shape).astype(np.float32)

    labels = np.split(random.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    out: State = {"vectors": normal(sizes[0], D), "clusters": cluster_scale * normal(len(sizes) - 1, D)}
    out |= {"bias": normal(sizes[0]), "cluster_bias": cluster_scale * normal(len(sizes) - 1)}
    for t, size in enumerate(sizes[1:], 1):
        out |= {f"tail{t}.project": normal(4, D), f"tail{t}.gain": normal(4), f"tail{t}.shift": normal(4)}
        out |= {f"tail{t}.vectors": normal(size, 4), f"tail{t}.bias": normal(size)}
    return {**out, "order": np.concatenate([np.sort(part) for part in labels]).astype(np.int32)}


def probabilities(state: State, H: Floats) -> NDArray[np.float64]:
    """Eq. 2 of the paper for every label, in double precision."""
    h = H.astype(np.float64)
    parts = [sigmoid(h @ state["vectors"].T + state["bias"])]
    clusters = sigmoid(h @ state["clusters"].T + state["cluster_bias"])
    for t in range(1, len(state["clusters"]) + 1):
        u = h @ state[f"tail{t}.project"].T
        u = (u - u.mean(1, keepdims=True)) / np.sqrt(u.var(1, keepdims=True) + 1e-5)
        P = np.maximum(u * state[f"tail{t}.gain"] + state[f"tail{t}.shift"], 0)
        parts.append(clusters[:, t - 1, None] * sigmoid(P @ state[f"tail{t}.vectors"].T + state[f"tail{t}.bias"]))
    p = np.empty((len(H), len(state["order"])))
    p[:, state["order"]] = np.hstack(parts)
    return p


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    out: NDArray[np.float64] = 1 / (1 + np.exp(-x))
    return out


def same(first: TopK, second: TopK) -> bool:
    return np.array_equal(first.ids, second.ids) and np.array_equal(first.scores, second.scores)


def record_visits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets the number of texts of each search in a tail."""
    seen: list[int] = []
    topk = search_module.TailSearch.topk
    monkeypatch.setattr(search_module.TailSearch, "topk", lambda tail, H, *rest: seen.append(len(H)) or topk(tail, H, *rest))  # type: ignore[func-returns-value]
    return seen


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 60),
    st.sampled_from([0.0, 1.0, 5.0]),
)
def test_the_result_is_the_topk_of_all_probabilities(seed: int, sizes: list[int], n: int, k: int, scale: float) -> None:
    """Whichever tails are skipped, and also if k is larger than the head, or than the number of labels."""
    state = arrays(seed, sizes, scale)
    H = np.random.default_rng(seed + 1).standard_normal((n, D)).astype(np.float32)
    best, p = ClusterSearch.from_state(state).topk(H, k), probabilities(state, H)
    assert best.k == min(k, sum(sizes))
    ordered = -np.sort(-p, axis=1)[:, : best.k]
    assert np.allclose(best.scores, ordered, rtol=1e-4, atol=1e-7)  # the highest probabilities
    assert np.allclose(np.take_along_axis(p, best.ids.astype(np.int64), axis=1), best.scores, rtol=1e-4, atol=1e-7)
    assert all(len(np.unique(row)) == best.k for row in best.ids)


def test_tails_that_cannot_matter_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    state = arrays(0, [10, 5, 5, 5])
    H = np.abs(np.random.default_rng(1).standard_normal((7, D))).astype(np.float32)
    state["clusters"][:] = [[-9] * D, [9] * D, [-8] * D]  # the second is sure, the others are not needed
    state["vectors"][:] = np.abs(state["vectors"])
    p, seen = probabilities(state, H), record_visits(monkeypatch)
    best = ClusterSearch.from_state(state).topk(H, 3)
    assert seen == [7]
    assert np.array_equal(best.ids, np.argsort(-p, axis=1)[:, :3])
    seen.clear()
    ClusterSearch.from_state(state).topk(H, 11)  # the head and the second tail have 15, the head alone 10
    assert seen == [7]
    seen.clear()
    ClusterSearch.from_state(state).topk(H, 16)  # now they are not enough
    assert seen[:2] == [7, 7]


def test_tails_are_skipped_for_some_texts_and_not_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    state = arrays(2, [30, 20, 20], 4.0)
    H = np.random.default_rng(1).standard_normal((300, D)).astype(np.float32)
    seen = record_visits(monkeypatch)
    best, p = ClusterSearch.from_state(state).topk(H, 3), probabilities(state, H)
    assert 0 < sum(seen) < 600
    assert np.allclose(best.scores, -np.sort(-p, axis=1)[:, :3], rtol=1e-4)


def test_a_tail_whose_bound_equals_the_kth_score_is_searched() -> None:
    """σ(a) is the k-th score exactly, and b so large that the tail's label has it too: the smaller label wins."""
    state = arrays(0, [1, 1])
    state["order"] = np.array([1, 0], np.int32)
    for name in ("vectors", "bias", "clusters", "cluster_bias"):
        state[name][:] = 0
    state["tail1.gain"][:], state["tail1.shift"][:], state["tail1.vectors"][:] = 0, 1, 1000
    best = ClusterSearch.from_state(state).topk(np.ones((1, D), np.float32), 1)
    assert best.ids.tolist() == [[0]] and best.scores.tolist() == [[0.5]]


def test_ties_go_to_the_smaller_label() -> None:
    state = {name: part if name == "order" else 0 * part for name, part in arrays(3, [3, 4, 5]).items()}
    head, first, second = np.split(state["order"], [3, 7])
    best = ClusterSearch.from_state(state).topk(np.ones((2, D), np.float32), 12)
    expected = [*np.sort(head), *np.sort(np.concatenate([first, second]))]
    assert best.ids.tolist() == [expected] * 2 and best.scores.tolist() == [[0.5] * 3 + [0.25] * 9] * 2


def test_probabilities_that_round_to_one_are_ordered_by_label() -> None:
    state = arrays(0, [4])
    state["vectors"] = np.array([[30], [50], [40], [1]], np.float32) * np.eye(1, D, dtype=np.float32)
    state["order"] = np.arange(4, dtype=np.int32)
    best = ClusterSearch.from_state(state).topk(np.eye(1, D, dtype=np.float32), 3)
    assert best.scores.tolist() == [[1, 1, 1]] and best.ids.tolist() == [[0, 1, 2]]


def test_the_number_of_texts_or_threads_does_not_change_a_bit() -> None:
    state = arrays(4, [50, 40, 300])
    H = np.random.default_rng(0).standard_normal((600, D)).astype(np.float32)
    search = ClusterSearch.from_state(state)
    many = search.topk(H, 7, threads=1)
    assert same(search.topk(H, 7, threads=3), many)
    alone = [search.topk(H[i : i + 1], 7) for i in range(len(H))]
    assert same(TopK(np.vstack([a.ids for a in alone]), np.vstack([a.scores for a in alone])), many)


def test_state_can_be_restored() -> None:
    state, H = arrays(5, [5, 6, 7]), np.random.default_rng(0).standard_normal((9, D)).astype(np.float32)
    search = ClusterSearch.from_state(state)
    again = search.state()
    assert again.keys() == state.keys() and all(np.array_equal(again[name], state[name]) for name in state)
    assert same(ClusterSearch.from_state(again).topk(H, 4), search.topk(H, 4))


def test_bad_input_is_refused() -> None:
    search = ClusterSearch.from_state(arrays(0, [3, 3]))
    assert search.topk(np.empty((0, D)), 2).ids.shape == (0, 2)
    with pytest.raises(SettingError, match="k is 0"):
        search.topk(np.ones((1, D)), 0)
    with pytest.raises(DataError, match="have dimension 5"):
        search.topk(np.ones((1, 5)), 1)
    with pytest.raises(DataError, match="row 1"):
        search.topk(np.array([[1.0] * D, [np.nan] * D]), 1)


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.sets(st.integers(0, 31), min_size=1),
    st.integers(1, 20),
    st.sampled_from([0.0, 1.0, 5.0]),
)
def test_clusters_without_allowed_labels_are_skipped(
    seed: int, sizes: list[int], chosen: set[int], k: int, scale: float
) -> None:
    """The result is the top-k of the probabilities of the allowed labels."""
    state = arrays(seed, sizes, scale)
    allowed = np.isin(np.arange(sum(sizes)), [label % sum(sizes) for label in chosen])
    H = np.random.default_rng(seed + 1).standard_normal((5, D)).astype(np.float32)
    best, p = ClusterSearch.from_state(state).topk(H, k, allowed=allowed), probabilities(state, H)
    assert best.k == min(k, allowed.sum()) and allowed[best.ids].all()
    assert np.allclose(best.scores, -np.sort(-p[:, allowed], axis=1)[:, : best.k], rtol=1e-4, atol=1e-7)
    assert np.allclose(np.take_along_axis(p, best.ids.astype(np.int64), axis=1), best.scores, rtol=1e-4, atol=1e-7)


def test_only_tails_with_allowed_labels_are_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    state, seen = arrays(0, [4, 5, 5, 5]), record_visits(monkeypatch)
    allowed = np.zeros(19, bool)
    allowed[state["order"][9:14]] = True  # the second tail
    best = ClusterSearch.from_state(state).topk(np.ones((3, D), np.float32), 9, allowed=allowed)
    assert seen == [3] and best.k == 5
