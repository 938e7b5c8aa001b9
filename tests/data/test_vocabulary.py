"""Vocabularies: every format gives the same labels, and data refers to them by name, URI, notation or another name."""

from __future__ import annotations

import gzip
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Labels
from longtail.data.concepts import join_names, split_names
from longtail.data.vocabulary import format_vocabulary, read_vocabulary
from longtail.data.write import write_parts
from longtail.errors import DataError, LongtailError, MissingExtra, SettingError

TURTLE = """\
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix x: <http://x/> .
x:animals a skos:ConceptScheme ; skos:prefLabel "Animals of the world"@en .
x:p1 a skos:Concept ; skos:prefLabel "cats"@en, "kissat"@fi ; skos:altLabel "felines"@en ; skos:notation "599.75" .
x:p2 a skos:Concept ; skos:prefLabel "dogs"@en, "koirat"@fi ; skos:hiddenLabel "dgos"@en, "piilo"@fi ;
  skos:broader x:p3 ; skos:definition \"\"\"They
\tbark.\"\"\"@en ; skos:scopeNote "Not wolves."@en .
x:p3 a skos:Concept ; skos:prefLabel "animals"@en, "elaimet"@fi ; skos:narrower x:p1 .
"""
NTRIPLES = """\
<http://x/p1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2004/02/skos/core#Concept> .
<http://x/p1> <http://www.w3.org/2004/02/skos/core#prefLabel> "cats"@en .
<http://x/p2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2004/02/skos/core#Concept> .
<http://x/p2> <http://www.w3.org/2004/02/skos/core#prefLabel> "dogs"@en .
<http://x/p2> <http://www.w3.org/2004/02/skos/core#broader> <http://x/p1> .
"""
RDF_XML = """\
<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="http://x/p1"><skos:prefLabel xml:lang="en">cats</skos:prefLabel></skos:Concept>
  <skos:Concept rdf:about="http://x/p2"><skos:prefLabel xml:lang="en">dogs</skos:prefLabel>
    <skos:broader rdf:resource="http://x/p1"/></skos:Concept>
</rdf:RDF>
"""
CATS_AND_DOGS = Labels(("cats", "dogs"), uris=("http://x/p1", "http://x/p2"), parents=((), ("cats",)))


def read_text(folder: Path, text: str, name: str = "vocabulary", language: str | None = None) -> tuple[Labels, str]:
    """The labels and the notes of a vocabulary."""
    (folder / name).write_text(text)
    labels, notes = read_vocabulary(folder / name, language)
    return labels, "\n".join(notes)


def test_a_thesaurus_in_english_and_in_finnish(tmp_path: Path) -> None:
    labels, notes = read_text(tmp_path, TURTLE, "v.ttl")
    assert labels == Labels(
        ("cats", "dogs", "animals"),
        texts=("", "They bark. Not wolves.", ""),
        parents=(("animals",), ("animals",), ()),
        uris=("http://x/p1", "http://x/p2", "http://x/p3"),
        alt_names=(("felines",), ("dgos",), ()),
        notations=("599.75", "", ""),
    )
    assert notes == "labels are named in en; vocabulary_language (--vocabulary-language) can also be fi"
    labels, notes = read_text(tmp_path, TURTLE, "v.ttl", "fi")
    assert labels.names == ("kissat", "koirat", "elaimet") and labels.alt_names == ((), ("piilo",), ())
    assert notes == "" and labels.texts is None
    with pytest.raises(SettingError, match=r'v.ttl: the vocabulary has no names in the language "sv". Available: en, fi'):
        read_text(tmp_path, TURTLE, "v.ttl", "sv")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.nt", NTRIPLES),
        ("v.rdf", RDF_XML),
        ("v.txt", NTRIPLES),
        ("noname", RDF_XML),
        ("v.tsv", "uri\tname\tparents\nhttp://x/p1\tcats\t\nhttp://x/p2\tdogs\tcats\n"),
        ("v.tsv", "name\tparents\turi\ncats\t\t<http://x/p1>\ndogs\thttp://x/p1\t<http://x/p2>\n"),
        ("v.csv", "uri,label_en,parents\n<http://x/p1>,cats\nhttp://x/p2,dogs,cats\n"),
        ("v.csv", '"uri";"label";"parents"\nhttp://x/p1;"cats";\nhttp://x/p2;dogs;cats\n'),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_all_formats_give_the_same_labels(tmp_path: Path, name: str, text: str, compressed: bool) -> None:
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    assert read_vocabulary(path) == (CATS_AND_DOGS, ())


def test_vocabularies_of_annif(tmp_path: Path) -> None:
    labels, notes = read_text(tmp_path, "<http://x/p1>\tcats\n<http://x/p2>\tdogs\t599.77\n<http://x/p3>\n")
    assert labels == Labels(("cats", "dogs"), uris=("http://x/p1", "http://x/p2"), notations=("", "599.77"))
    assert notes == "1 URIs without a name were left out of the vocabulary"
    table = "uri,label_fi,label_en,notation\nhttp://x/p1,kissat,cats,\nhttp://x/p2,koirat,,5\nhttp://x/p3,,,\n"
    labels, notes = read_text(tmp_path, table, "v.csv")
    assert labels.names == ("cats", "koirat")
    assert notes.split("\n")[1:] == [
        '1 labels have no name in "en"; another language is used',
        "1 URIs without a name were left out of the vocabulary",
    ]
    assert read_text(tmp_path, table, "v.csv", "fi")[0].names == ("kissat", "koirat")


def test_the_most_frequent_language_is_used_if_there_is_no_english(tmp_path: Path) -> None:
    table = "uri,label_sv,label_fi\nhttp://x/1,a,b\nhttp://x/2,,c\n"
    labels, notes = read_text(tmp_path, table)
    assert labels.names == ("b", "c") and notes.startswith("labels are named in fi;") and notes.endswith("be sv")
    assert read_text(tmp_path, table.replace("label_sv", "label_en-GB"))[0].names == ("a", "c")
    assert read_text(tmp_path, table.replace("label_sv", "label_en-GB"), language="en")[0].names == ("a", "c")
    both = "uri,label_en,label_en-GB\nhttp://x/1,color,colour\nhttp://x/2,,grey\n"
    assert read_text(tmp_path, both, language="en") == (Labels(("color", "grey"), uris=("http://x/1", "http://x/2")), "")


def test_deprecated_concepts_and_their_links_are_left_out_and_counted(tmp_path: Path) -> None:
    labels, notes = read_text(tmp_path, TURTLE + "x:p3 owl:deprecated true .\n", "v.ttl", "en")
    assert labels.names == ("cats", "dogs") and labels.parents is None
    assert notes.split("\n") == [
        "1 deprecated concept was left out of the vocabulary",
        "2 broader concepts are not in the vocabulary, or deprecated; they were left out",
    ]


def test_homonyms_become_unique(tmp_path: Path) -> None:
    more = 'x:p4 a skos:Concept ; skos:prefLabel "cats"@en .\nx:p5 a skos:Concept ; skos:prefLabel "cats (p4)"@en .\n'
    labels, notes = read_text(tmp_path, TURTLE + more, "v.ttl", "en")
    assert labels.names == ("cats (599.75)", "dogs", "animals", "cats (http://x/p4)", "cats (p4)")
    assert notes == (
        '2 labels have the same name as another: a notation or the last part of the URI was added, as in "cats (599.75)"'
    )
    data = Dataset.from_texts(["a", "b"], [["cats"], ["http://x/p4"]], known=labels)
    assert [data.get_label_names(i) for i in (0, 1)] == [["cats"], ["cats (http://x/p4)"]]  # "cats" stands for neither


def test_concepts_without_a_name_get_their_notation_or_the_end_of_their_uri(tmp_path: Path) -> None:
    more = 'x:p4 a skos:Concept .\n<http://x/y#p5> a skos:Concept ; skos:notation "7" .\n'
    labels, notes = read_text(tmp_path, TURTLE + more, "v.ttl", "en")
    assert labels.names[3:] == ("p4", "7")
    assert notes == "2 concepts have no name: their notation or the last part of their URI is used"


def test_data_refers_to_labels_by_name_uri_notation_or_another_name(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_text(TURTLE)
    (tmp_path / "data.tsv").write_text("a loud dog\t<http://x/p2> <http://x/p9>\na cat that sleeps\t<http://x/p1>\n")
    data = longtail.read(tmp_path / "data.tsv", vocabulary=tmp_path / "v.ttl", vocabulary_language="en")
    assert [data.get_label_names(i) for i in (0, 1)] == [["dogs", "http://x/p9"], ["cats"]]
    assert data.notes[0] == "label names from v.ttl" and "1 labels are not in the vocabulary" in data.notes[-1]
    names = [["cats", "599.75", "felines", "http://x/p1"], ["dgos", "dog"]]
    data = Dataset.from_texts(["a", "b"], names, known=read_vocabulary(tmp_path / "v.ttl").labels)
    assert [data.get_label_names(i) for i in (0, 1)] == [["cats"], ["dogs", "dog"]]
    assert data.notes[0] == "3 repeated labels of a text were dropped"


def test_data_in_memory_is_read_with_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_text(TURTLE)
    data = longtail.read(["a text", "b text"], [["felines"], ["new"]], vocabulary=tmp_path / "v.ttl")
    assert data.labels.names == ("cats", "dogs", "animals", "new") and data.Y.indices.tolist() == [0, 3]
    assert data.notes[0] == "label names from v.ttl"


def test_a_name_comes_before_a_uri_a_notation_and_another_name() -> None:
    labels = Labels(("1", "2", "3"), notations=("2", "7", "7"), alt_names=(("3", "x"), ("x", "y"), ("7",)))
    assert labels.keys == {"1": 0, "2": 1, "3": 2, "7": 2, "y": 1}


def test_a_split_keeps_the_vocabulary(tmp_path: Path) -> None:
    labels = read_text(tmp_path, TURTLE, "v.ttl")[0]
    data = Dataset.from_texts(["a", "b"], [["dogs"], ["cats", "new"]], known=labels)
    train, test = write_parts({"train": data.take([0]), "test": data.take([1])}, tmp_path / "parts")
    assert longtail.read(train).labels == longtail.read(test).labels == data.labels
    assert longtail.read(test).get_label_names(0) == ["cats", "new"]


def test_labels_are_aligned_by_uri_if_both_sides_have_uris() -> None:
    english = Labels(("cats", "dogs"), uris=("http://x/1", "http://x/2"))
    finnish = Labels(("koirat", "cats"), uris=("http://x/2", "http://x/3"), parents=((), ("koirat",)))
    test = Dataset.from_texts(["a", "b"], [["koirat"], ["cats"]], known=finnish).align(english)
    assert test.labels.names == ("cats", "dogs", "cats (3)") and test.Y.indices.tolist() == [1, 2]
    assert test.labels.uris == ("http://x/1", "http://x/2", "http://x/3")
    assert test.labels.parents == ((), (), ("dogs",))


def test_labels_are_aligned_by_name_if_one_side_has_no_uris() -> None:
    known = Labels(("cats", "dogs"), uris=("http://x/1", "http://x/2"), alt_names=(("felines",), ()))
    by_uri = Dataset.from_texts(["a", "b"], [["http://x/2"], ["felines", "cats"]])
    aligned = by_uri.align(known)
    assert aligned.labels == known and aligned.Y.toarray().tolist() == [[0, 1], [1, 0]]
    again = Dataset.from_texts(["a"], [["dogs"]], known=known).align(by_uri.labels)
    assert again.labels.names == ("http://x/2", "felines", "cats") and again.Y.indices.tolist() == [0]


NAMES = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name.strip() == name
)


@given(st.lists(NAMES, max_size=4))
def test_names_in_one_cell_round_trip(names: list[str]) -> None:
    assert split_names(join_names(names)) == tuple(names)


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True), st.data())
def test_labels_round_trip_through_a_table(tmp_path_factory: pytest.TempPathFactory, names: list[str], data) -> None:  # type: ignore[no-untyped-def]
    n = len(names)
    cells = st.lists(NAMES.filter(lambda name: name not in names), max_size=2, unique=True).map(tuple)
    labels = Labels(
        tuple(names),
        texts=("a text", *data.draw(st.tuples(*[NAMES] * (n - 1)))),
        parents=((names[1],), *[()] * (n - 1)),
        uris=tuple(f"http://x/{i}" for i in range(n)),
        alt_names=(("other",), *data.draw(st.tuples(*[cells] * (n - 1)))),
    )
    path = tmp_path_factory.mktemp("table") / "labels.tsv"
    path.write_bytes(format_vocabulary(labels).encode())
    assert read_vocabulary(path) == (labels, ())
    only_names = replace(labels, texts=None, parents=None, uris=None, alt_names=None)
    path.write_bytes(format_vocabulary(only_names).encode())
    assert read_vocabulary(path) == (only_names, ())


@given(
    st.binary(max_size=80) | st.text(max_size=80).map(str.encode),
    st.sampled_from(["v.txt", "v.csv", "v.ttl", "v.nt", "v.rdf"]),
)
def test_no_file_crashes_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(content)
    try:
        read_vocabulary(path)
    except LongtailError as error:
        assert str(path) in str(error) and error.hint


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("v.txt", "cats\tdogs\n", 'v.txt:1:1: "cats" is not a URI, and there is no header'),
        ("v.txt", "<http://x/1>\tcats\ndogs\tcats\n", 'v.txt:2:1: "dogs" is not a URI'),
        ("v.txt", "<http://x/1>\ta\tb\tc\n", "v.txt:1:1: there are more than three cells"),
        ("v.txt", '{"text": "a", "labels": ["b"]}\n', "v.txt:1:1: the vocabulary has JSON objects, not label names"),
        ("v.tsv", "name\turi\na\thttp://x/1\nb\thttp://x/1\n", 'v.tsv:3: the label URI "http://x/1" occurs twice'),
        ("v.tsv", "name\ttext\na\tone\tmore\n", "v.tsv:2:1: 3 cells, but the header has 2"),
        ("v.tsv", "name\ttext\na\t\n\nb\t\n", "v.tsv:3:1: a label has no name"),
        ("v.csv", 'uri,label_fi\nhttp://x/1,"cats\n', "v.csv:2:1: not a table"),
        ("v.ttl", TURTLE + "x:p9 a skos:Concept skos:prefLabel 'a' .\n", "v.ttl:10: not Turtle"),
        ("v.nt", NTRIPLES + "<http://x/p9> broken\n", "v.nt:6: not N-Triples"),
        ("v.rdf", RDF_XML.replace("</rdf:RDF>", "</rdf>"), "v.rdf:6: not RDF/XML"),
        ("v.rdf", RDF_XML.replace("<skos:broader", "<skos:broader rdf:ID='a b'"), "v.rdf:5: not RDF/XML"),
        ("v.ttl", "@prefix x: <http://x/> .\nx:a a x:Animal .\n", "v.ttl: there are no SKOS concepts"),
    ],
)
def test_errors_say_where_they_are(tmp_path: Path, name: str, text: str, found: str) -> None:
    with pytest.raises(DataError) as caught:
        read_text(tmp_path, text, name)
    assert found in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("column", ["text", "description", "definition"])
def test_descriptions_have_several_names(tmp_path: Path, column: str) -> None:
    labels, notes = read_text(tmp_path, f"name,{column}\ncats,small\n", "v.csv")
    assert labels.texts == ("small",) and not notes


def test_a_wrong_encoding_is_located(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_bytes(TURTLE.encode() + b"\n\nx:p4 a skos:Concept ; skos:prefLabel '\xfc' .\n")
    with pytest.raises(DataError, match=r"v\.ttl:12: byte 0xfc is not UTF-8. Convert the file"):
        read_vocabulary(tmp_path / "v.ttl")


@pytest.mark.parametrize(("name", "text"), [("v.txt", "cats\ndogs\n"), ("v.tsv", "<http://x/1>\tcats\n")])
def test_a_language_needs_names_with_languages(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SettingError, match="the names of this vocabulary have no language"):
        read_text(tmp_path, text, name, "fi")
    (tmp_path / "data.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    with pytest.raises(SettingError, match="there is no vocabulary"):
        longtail.read(tmp_path / "data.jsonl", vocabulary_language="fi")


def test_skos_without_rdflib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtra, match=r"Reading SKOS needs rdflib. .*'longtail\[skos\]'"):
        read_text(tmp_path, TURTLE, "v.ttl")


def test_columns_that_are_not_used_are_noted(tmp_path: Path) -> None:
    assert read_text(tmp_path, "name\tcolour\ncats\tred\n") == (
        Labels(("cats",)),
        "columns of the vocabulary that are not used: colour",
    )
