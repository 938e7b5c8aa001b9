"""The requests and answers of our own interface, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from longtail.errors import suggest
from longtail.service.answers import MAX_K, MAX_WORDS

Word = Annotated[str, Field(min_length=1, max_length=2000)]
Words = Annotated[list[Word], Field(max_length=MAX_WORDS, fail_fast=True)]
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]  # an error for each of millions of values takes gigabytes


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        """Report one unknown field. Otherwise there would be an error for each of them, and a request may have millions."""
        if isinstance(values, dict) and (unknown := values.keys() - cls.model_fields.keys()):
            name = str(min(unknown))[:100]
            hint = suggest(name, cls.model_fields)
            raise PydanticCustomError("unknown", 'there is no field "{name}"', {"name": name, "hint": hint})
        return values


class PredictRequest(_Strict):
    """Texts, and which labels to return for each of them."""

    texts: Texts = Field(description="Texts, at most as many as the service allows (1,000)")
    model: str | None = Field(None, description="Name of a model. Default: the first one")
    k: int | None = Field(None, ge=1, le=MAX_K, description="Number of labels (default: 5); the largest number in a set")
    target: str | None = Field(None, description="A set of labels: expected-f1, precision=0.9, recall=0.8, count=3, …")
    threshold: float | None = Field(None, allow_inf_nan=False, description="The labels with at least this score")
    allow: Words | None = Field(None, description="Only these labels: names, URIs, notations, or patterns with * and ?")
    deny: Words | None = Field(None, description="Never these labels")
    subtree: Word | None = Field(None, description="Only this label and those below it, in addition to allow")
    explain: bool = Field(False, description="Which parts of the text are evidence for each label; for one text")


class EvidencePart(BaseModel):
    """The characters [start, end) of a text, as code points, and how much they contribute to a label."""

    start: int
    end: int
    weight: float


class LabelEntry(BaseModel):
    """A label of a model."""

    label: str
    id: str = Field(description="The URI, or the name if there is none")
    path: list[str] = Field(description="Names of the labels above it, from the top")
    n_samples: int


class ScoredLabel(LabelEntry):
    """A label of a text."""

    score: float
    expected_precision: float | None = Field(None, description="Mean probability of this label and those before it")
    parts: list[EvidencePart] | None = None


class UnknownWords(BaseModel):
    """How much of a text the model does not know."""

    n_words: int
    n_unknown: int


class TextResult(BaseModel):
    """The labels of one text."""

    labels: list[ScoredLabel]
    unknown: UnknownWords | None = Field(description="null if the features of the model are not words")
    warning: str | None = None


class PredictResponse(BaseModel):
    """The labels of all texts, in order."""

    model: str
    version: str
    results: list[TextResult]


class MatchedLabel(LabelEntry):
    """A label that a search has found."""

    matched: str = Field(description="The name or synonym that matched")


class LabelList(BaseModel):
    """What a search has found, best first."""

    labels: list[MatchedLabel]


class TreeNode(BaseModel):
    """A label in the hierarchy."""

    label: str
    id: str
    n_samples: int
    n_children: int


class LabelLevel(BaseModel):
    """Some of the labels directly below another one."""

    labels: list[TreeNode]
    total: int


class ModelSummary(BaseModel):
    """A model in a list."""

    name: str
    spec: str
    method: str
    version: str
    trained: str | None
    n_labels: int
    n_samples: int
    language: str | None
    score: Literal["probability", "margin", "count"]
    has_parents: bool
    reads: Literal["texts", "vectors"]


class ModelList(BaseModel):
    """The models that are served."""

    models: list[ModelSummary]
    default: str


class ModelCard(ModelSummary):
    """Everything about a model."""

    settings: dict[str, Any]
    figures: dict[str, float] = Field(description="Measured on held-out samples: P@k and those of sets, in percent")
    held_out: str = Field(description="The held-out samples; empty if there are none")
    calibration: dict[str, Any] | None
    largest: list[dict[str, Any]]
    decisions: list[str]
    history: list[str]
    size_mb: float


class FeedbackRequest(_Strict):
    """What a person said about the labels of a text."""

    model: str
    version: str | None = Field(None, max_length=64)
    text: str | None = Field(None, description="Kept only with consent; without it, nothing can be learned from the event")
    consent: bool
    shown: Words = Field(default_factory=list)
    accepted: Words = Field(default_factory=list)
    rejected: Words = Field(default_factory=list)
    added: Words = Field(default_factory=list)


class FeedbackReceipt(BaseModel):
    """The event that was written."""

    id: str


class ReloadRequest(_Strict):
    """Which model to load again."""

    model: str | None = Field(None, description="Default: all")


class Health(BaseModel):
    """Whether the service is alive or ready."""

    status: Literal["ok"]


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
