"""What a tagger can be fitted on: data sets, texts and labels, matrices, data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Tagger, read
from longtail.errors import DataError

TEXTS = ["red apple", "red rose", "green apple", "white rose"]
NAMES = [["fruit"], ["flower"], ["fruit", "green"], ["flower"]]
Y = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0]])


class Column:
    """A column as pandas and polars have it."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def to_list(self) -> list[Any]:
        return self.values


class Frame:
    """A data frame, as far as a tagger looks at it."""

    def __init__(self, **columns: list[Any]) -> None:
        self.data = columns

    @property
    def columns(self) -> list[str]:
        return list(self.data)

    def __getitem__(self, name: str) -> Column:
        return Column(self.data[name])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(list(self.data.values()), dtype).T


def test_every_form_of_texts_gives_the_same_tagger() -> None:
    expected = Tagger("ovr", min_df=1).fit(Dataset.from_texts(TEXTS, NAMES)).predict(TEXTS)
    frame = Frame(body=TEXTS, tags=NAMES)
    assert Tagger("ovr", min_df=1).fit(TEXTS, NAMES).predict(TEXTS) == expected
    assert Tagger("ovr", min_df=1).fit(iter(TEXTS), iter(NAMES)).predict(TEXTS) == expected
    assert Tagger("ovr", min_df=1).fit(np.array(TEXTS), NAMES).predict(TEXTS) == expected
    assert Tagger("ovr", min_df=1).fit(frame, text="body", labels="tags").predict(TEXTS) == expected
    assert Tagger("ovr", min_df=1).fit(Frame(text=TEXTS, labels=NAMES)).predict(TEXTS) == expected
    assert (
        Tagger("ovr", min_df=1).fit(Frame(text=TEXTS, labels=["fruit", "flower", "fruit;green", "flower"])).predict(TEXTS)
        == expected
    )
    numbered = Tagger("ovr", min_df=1).fit(TEXTS, sp.csr_array(Y)).predict(TEXTS)
    assert [[tag.score for tag in tags] for tags in numbered] == [[tag.score for tag in tags] for tags in expected]
    assert {tag.label for tags in numbered for tag in tags} == {"0", "1", "2"}


@pytest.mark.parametrize("labels", [NAMES, [tuple(names) for names in NAMES], [set(names) for names in NAMES], Y, Y > 0])
@pytest.mark.parametrize("matrix", [np.eye(4), sp.csr_array(np.eye(4)), sp.coo_matrix(np.eye(4)), np.eye(4, dtype=int)])
def test_every_form_of_vectors(labels: Any, matrix: Any) -> None:
    data = read(matrix, labels)
    assert data.X.shape == (4, 4) and data.Y.toarray().tolist() == Y.tolist()
    assert Tagger("ovr").fit(matrix, labels).predict(matrix, k=1)[1][0].label == data.labels.names[1]


def test_frames_of_numbers_are_feature_vectors() -> None:
    features, labels = Frame(width=[1, 0, 1, 0], height=[0, 1, 0, 1]), Frame(fruit=[1, 0, 1, 0], flower=[0, 1, 0, 1])
    tagger = Tagger("ovr").fit(features, labels)
    assert tagger.labels.names == ("fruit", "flower")
    assert [tags[0].label for tags in tagger.predict(features, k=1)] == ["fruit", "flower"] * 2


def test_validation_and_test_data_take_the_same_forms() -> None:
    frame = Frame(body=TEXTS, tags=NAMES)
    expected = Tagger("ovr", min_df=1).fit(Dataset.from_texts(TEXTS, NAMES), valid=Dataset.from_texts(TEXTS, NAMES))
    as_pair = Tagger("ovr", min_df=1).fit(TEXTS, NAMES, valid=(TEXTS, NAMES))
    as_frame = Tagger("ovr", min_df=1).fit(frame, "tags", text="body", valid=frame)
    assert as_pair.threshold == as_frame.threshold == expected.threshold
    values = expected.evaluate(Dataset.from_texts(TEXTS, NAMES)).values
    assert as_pair.evaluate(TEXTS, NAMES).values == as_frame.evaluate(frame, "tags", text="body").values == values


@pytest.mark.parametrize(
    ("data", "labels", "found"),
    [
        (TEXTS, None, "data was passed without labels. Pass a Dataset, a file, texts and labels"),
        (TEXTS, NAMES[:3], "4 samples but labels of 3"),
        (TEXTS, Y[:3], "4 samples but labels of 3"),
        (np.eye(3), Y, "3 samples but labels of 4"),
        ("red apple", [["fruit"]], "a single text was passed.* Pass a list of texts"),
        (
            TEXTS,
            ["fruit", "flower", "fruit", "flower"],
            "sample 0: the labels of a sample are 'fruit'. Pass a list of label names",
        ),
        (TEXTS, [0, 1, 0, 1], "sample 0: the labels of a sample are 0"),
        (TEXTS, np.array([0, 1, 0, 1]), "sample 0: the labels of a sample are"),
        (TEXTS, np.zeros((2, 2, 2)), "the labels have 3 dimensions. Pass an indicator matrix"),
        (TEXTS, Y * 2, "other than 0 and 1"),
        ([*TEXTS[:3], 7], NAMES, "a text is of type int"),
        (Dataset.from_texts(TEXTS, NAMES), NAMES, "together with labels.* Leave the labels out"),
        (Dataset.from_texts(TEXTS, NAMES), Dataset.from_texts(TEXTS, NAMES), "Pass validation data as valid="),
        (Frame(words=["a"] * 4, tags=NAMES), None, "not clear which column has the text: .*Set --text .in Python text="),
        (Frame(text=TEXTS, tags=NAMES), "tag", 'no column "tag". Did you mean "tags"'),
        (Frame(text=TEXTS, labels=[["a"], [None], ["b"], ["c"]]), None, "row 2: a label is null"),
        (Frame(text=[*TEXTS[:3], None], labels=NAMES), None, 'row 4: "text" is null, not a string'),
    ],
)
def test_other_forms_are_refused(data: Any, labels: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        Tagger("ovr", min_df=1).fit(data, labels)


def test_frames_are_not_mistaken_for_texts() -> None:
    tagger = Tagger("ovr", min_df=1).fit(TEXTS, NAMES)
    assert tagger.predict(Frame(labels=NAMES, text=TEXTS)) == tagger.predict(TEXTS)
    with pytest.raises(DataError, match="the inputs are of type int"):
        tagger.predict(3)
    with pytest.raises(DataError, match="a single text was passed"):
        tagger.predict("red apple")


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    expected = Tagger("ovr", min_df=1).fit(TEXTS, NAMES).predict(TEXTS)
    frame = pandas.DataFrame({"body": TEXTS, "tags": NAMES}, index=[9, 5, 7, 1])
    tagger = Tagger("ovr", min_df=1).fit(frame, text="body", labels="tags", valid=frame)
    assert tagger.predict(frame["body"]) == expected == Tagger("ovr", min_df=1).fit(frame.body, frame.tags).predict(TEXTS)
    vectors = Tagger("ovr").fit(pandas.DataFrame(np.eye(4)), pandas.DataFrame(Y, columns=["a", "b", "c"]))
    assert vectors.labels.names == ("a", "b", "c") and vectors.predict(pandas.DataFrame(np.eye(4)), k=1)[0][0].label == "a"
    frame.loc[5, "tags"] = None
    data = read(frame, "tags", text="body")
    assert data.Y.sum() == 4 and data.notes[-1] == "the labels of 1 samples are missing or null; they have no labels"
