from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import BundleError, MissingExtra, SettingError
from longtail.features.analyser import VOIKKO, Analyser
from longtail.features.compounds import CompoundSplitter
from longtail.features.language import LANGUAGES, detect_language, get_language
from longtail.features.rewriting import SUBWORDS, Rewriter, choose_subword_weight, make_subwords

SENTENCES = {
    "fi": "Lapset ja nuoret ovat kirjastossa, mutta hän on kotona. Suomen kieli oli niin vaikea, että se ei ole helppo.",
    "de": "Die Geschichte der Stadt und ihrer Bewohner ist nicht neu. Das Buch handelt von einer Reise auf dem Land.",
    "en": "The history of the town and its people is not new. This book is about a journey that was made by the sea.",
    "fr": "L'histoire de la ville et des habitants est dans un livre. Le voyage que les enfants ont fait est long.",
    "sv": "Historien om staden och de som bor där är inte ny. Det är en bok för barn, med bilder av djur som man kan se på.",
    "es": "La historia de la ciudad y los habitantes no es nueva. El libro que se lee en las escuelas es para los niños.",
    "it": "La storia della città e degli abitanti non è nuova. Il libro che si legge nelle scuole è per i bambini.",
    "nl": "De geschiedenis van de stad en het land is niet nieuw. Het boek gaat over een reis door een land.",
    "pt": "A história da cidade e dos habitantes não é nova. O livro que se lê em casa é para uma criança.",
    "ru": "История города и его жителей не нова. Это книга о том, как он был в пути, но не знал, что за ним идут из города.",
    "pl": "Historia miasta i jego mieszkańców nie jest nowa. To książka o podróży, która się nie kończy, dla dzieci.",
    "hu": "A város és a lakók története nem új. Ez egy könyv, amely az utazásról szól, de csak azt meséli el, hogy mi volt.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_the_language_of_a_few_sentences_is_detected(language: str) -> None:
    assert detect_language([SENTENCES[language]] * 2) == language


def test_a_language_is_not_guessed() -> None:
    assert detect_language([]) is None
    assert detect_language(["", "  "]) is None
    assert detect_language(["the of"]) is None, "too few words"
    assert detect_language(["x1 y2 z3 foo bar baz"] * 20) is None, "no function words"
    assert detect_language([*SENTENCES.values()]) is None, "a mixture"


def test_the_same_texts_have_the_same_language_whatever_their_order() -> None:
    texts = [SENTENCES["fi"]] * 5 + [SENTENCES["en"]] * 2
    assert detect_language(texts) == detect_language(texts[::-1]) == "fi"


@pytest.mark.parametrize(
    ("language", "words", "stem"),
    [
        ("fi", ["kirjasto", "kirjastot", "kirjastossa", "kirjastojen"], "kirjasto"),
        ("de", ["haus", "häuser", "hauses"], "haus"),
        ("en", ["library", "libraries"], "librari"),
        ("fr", ["continu", "continue", "continuer", "continua"], "continu"),
        ("sv", ["flicka", "flickor", "flickorna"], "flick"),
        ("es", ["niño", "niños", "niña"], "niñ"),
    ],
)
def test_forms_of_a_word_have_one_stem(language: str, words: list[str], stem: str) -> None:
    analyser = Analyser(language).fit({})
    assert {analyser.analyse(word)[0] for word in words} == {stem}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_a_stemmer(language: str) -> None:
    assert Analyser(language).fit({}).analyse("abc1") == ("abc1",)


@pytest.mark.parametrize(
    ("language", "corpus", "word", "parts"),
    [
        ("fi", "maan viljely kulttuuri", "maanviljelykulttuurissa", ["maan", "viljely", "kulttuurissa"]),
        ("fi", "ulko politiikka", "ulkopolitiikan", ["ulko", "politiikan"]),
        ("de", "arbeit markt", "arbeitsmärkte", ["arbeits", "märkte"]),
        ("de", "straße bahn", "straßenbahnen", ["straßen", "bahnen"]),
        ("de", "stadt geschichte", "stadtgeschichten", ["stadt", "geschichten"]),
        ("de", "kind buch", "kinderbücher", ["kinder", "bücher"]),
        ("sv", "stad bibliotek", "stadsbiblioteken", ["stads", "biblioteken"]),
        ("fi", "kala", "kalakala1", []),
        ("fi", "maa tila", "maatila", []),  # parts of less than four letters are found everywhere
        ("en", "book shop", "bookshop", []),
    ],
)
def test_compounds_are_split_into_words_of_the_corpus(language: str, corpus: str, word: str, parts: list[str]) -> None:
    analyser = Analyser(language).fit(dict.fromkeys(corpus.split(), 3))
    located = analyser.locate(word)
    assert (located[0].start, located[0].end) == (0, len(word))
    assert [word[term.start : term.end] for term in located[1:]] == parts
    assert analyser.analyse(word)[1:] == tuple(analyser.analyse(part)[0] for part in parts)


def test_the_split_of_the_most_frequent_words_wins() -> None:
    splitter = CompoundSplitter(str).fit({"aaaab": 1, "cccc": 1, "aaaa": 5, "bcccc": 1})
    assert splitter.split("aaaabcccc") == [(0, 4), (4, 9)]


@given(st.text("aäbs", max_size=30), st.dictionaries(st.text("aäbs", min_size=1, max_size=8), st.integers(1, 9), max_size=8))
def test_parts_are_in_order_and_do_not_overlap(word: str, counts: dict[str, int]) -> None:
    spans = CompoundSplitter(str).fit(counts).split(word)
    flat = [position for span in spans for position in span]
    assert flat == sorted(flat) and all(end - start >= 4 for start, end in spans)
    assert len(spans) != 1 and (not spans or (flat[0], flat[-1]) == (0, len(word)))


@pytest.mark.parametrize("language", ["fi", "en"])
def test_an_analyser_is_the_same_after_a_round_trip(language: str) -> None:
    counts = {"maan": 3, "viljely": 4, "kulttuuri": 5, "1984": 2}
    analyser = Analyser(language).fit(counts)
    state = analyser.state()
    assert all(array.dtype != object for array in state.values())
    again = Analyser.from_state(state)
    words = [*counts, "maanviljelyn", "kulttuurissa", "ääretön"]
    assert [again.locate(word) for word in words] == [analyser.locate(word) for word in words]
    assert {name: array.tobytes() for name, array in again.state().items()} == {
        name: array.tobytes() for name, array in state.items()
    }


def test_an_analyser_does_not_depend_on_the_order_of_words() -> None:
    counts = {"maan": 3, "viljely": 4, "maat": 1}
    one, other = Analyser("fi").fit(counts).state(), Analyser("fi").fit(dict(reversed(counts.items()))).state()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_another_version_of_the_stemmer_is_noticed() -> None:
    state = Analyser("en").fit({"libraries": 2, "is": 1}).state()
    state["probe_terms"] = np.frombuffer(b"library\nis", np.uint8)
    with pytest.raises(BundleError, match=r"another way than when this model was trained.*PyStemmer"):
        Analyser.from_state(state)


def test_unknown_languages_come_with_a_suggestion() -> None:
    with pytest.raises(SettingError, match='Did you mean "fi"'):
        get_language("finnish")
    with pytest.raises(SettingError, match="Available: ar, ca, "):
        Analyser("xx")


def test_a_missing_stemmer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtra, match=r"English words needs PyStemmer.*longtail\[language\]"):
        Analyser("en")


def raise_missing_library(language: str) -> None:
    raise OSError("libvoikko.so.1: cannot open shared object file")


@pytest.mark.parametrize("module", [None, SimpleNamespace(Voikko=raise_missing_library, VoikkoException=ValueError)])
def test_a_missing_voikko_is_named(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvoikko", module)
    with pytest.raises(SettingError, match=r"needs libvoikko.*apt install.*Or set language=fi$"):
        Analyser(VOIKKO)


def test_base_forms_and_parts_of_voikko(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {
        "munuaisensiirrossa": {"BASEFORM": "munuaisensiirto", "WORDBASES": "+munuaisen(munuainen)+siirto(siirto)"},
        "kansainväliset": {"BASEFORM": "kansainvälinen", "WORDBASES": "+kansain(kansa)+väl(väli)+inen(+inen)"},
        "historiaa": {"BASEFORM": "historia", "WORDBASES": "+historia(historia)"},
    }
    voikko = SimpleNamespace(analyze=lambda word: [readings[word]] if word in readings else [])
    monkeypatch.setitem(sys.modules, "libvoikko", SimpleNamespace(Voikko=lambda language: voikko))
    analyser = Analyser(VOIKKO).fit({"historiaa": 1})
    assert analyser.locate("munuaisensiirrossa") == (
        ("munuaisensiirto", 0, 18),
        ("munuainen", 0, 9),
        ("siirto", 9, 18),
    )
    assert analyser.analyse("kansainväliset") == ("kansainvälinen", "kansa", "väli")
    assert analyser.analyse("historiaa") == ("historia",)
    assert analyser.analyse("kirjastossa") == ("kirjasto",), "the stem of a word that Voikko does not know"
    assert Analyser.from_state(analyser.state()).analyse("historiaa") == ("historia",)


@given(st.text("abäİß_ ,1", max_size=40), st.integers(3, 6))
def test_subwords_are_the_characters_that_they_come_from(text: str, length: int) -> None:
    rewriter = Rewriter(lambda word: make_subwords(word, length))
    rewritten, starts, ends = rewriter.align(text)
    assert rewritten == rewriter.rewrite(text)
    terms = rewritten.split()
    assert len(terms) == len(starts) == len(ends)
    for term, start, end in zip(terms, starts, ends, strict=True):
        assert 0 <= start < end <= len(text)
        if "İ" not in text and "_" not in text:
            assert term.replace("_", "") == text[start:end].lower()


def test_a_text_is_rewritten_word_by_word() -> None:
    analyser = Analyser("fi").fit({"ulko": 2, "politiikka": 3})
    rewriter = Rewriter(analyser.locate)
    rewritten, starts, ends = rewriter.align("Suomen ULKOPOLITIIKAN: 2 vaihetta")
    assert rewritten == rewriter.rewrite("Suomen ULKOPOLITIIKAN: 2 vaihetta") == "suome ulkopolitiik ulko politiik 2 vaihe"
    assert (starts.tolist(), ends.tolist()) == ([0, 7, 7, 11, 23, 25], [6, 21, 11, 21, 24, 33])
    assert SUBWORDS.rewrite("") == "" and [len(part) for part in SUBWORDS.align("…")] == [0, 0, 0]


def test_the_cache_of_words_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.features.rewriting._MAX_CACHED", 3)
    rewriter = Rewriter(make_subwords)
    assert rewriter.rewrite("a b c d e a") == "_a_ _b_ _c_ _d_ _e_ _a_" and len(rewriter._cache) <= 3


@pytest.mark.parametrize(
    ("n_rare", "n_frequent", "weight"),
    [
        (20, 8, 2.0),  # words in one text, words in ten texts: 20 of 100 words are rare
        (60, 4, 3.0),
        (10, 9, 1.0),
        (0, 0, 1.0),
    ],
)
def test_subwords_count_more_if_many_words_are_rare(n_rare: int, n_frequent: int, weight: float) -> None:
    df = np.array([1] * n_rare + [10] * n_frequent, np.int64)
    assert choose_subword_weight(df) == pytest.approx(weight)
