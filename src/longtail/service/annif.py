"""Annif's REST interface, below /v1: for Annif's own ``http`` backend, annif-client, and pages written for it.

It takes what clients send, even if they call it by another name, and waits if the queue is full: Annif takes a refusal for a
text without subjects. Every URI is one of the vocabulary that ``longtail labels MODEL export`` writes: Annif 1.4 crashes on
others.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from longtail import __version__
from longtail.data.annif import find_by_urn, make_uri
from longtail.features.language import LANGUAGES, compare_languages
from longtail.service.answers import MAX_K, PredictOptions, TextAnswer
from longtail.service.api import JSON, Shared, answer_json, can_learn, can_predict, encode
from longtail.service.batching import Render
from longtail.service.bodies import JsonRoute
from longtail.service.errors import ServiceError
from longtail.service.forms import parse_form, parse_number
from longtail.service.models import ServedModel
from longtail.service.state import Service

_MAX_DOCUMENTS = 32
_DEFAULT_LIMIT = 10
_MAX_LIMIT = 2**31 - 1
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "required": ["text"],
                    "properties": {
                        "text": {"type": "string"},
                        "limit": {"type": "integer", "minimum": 0, "default": _DEFAULT_LIMIT},
                        "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
                        "language": {"type": "string"},
                    },
                }
            }
        },
    }
}

router = APIRouter(prefix="/v1", tags=["Annif"], route_class=JsonRoute)


class AnnifDocument(BaseModel):
    """One text of a batch."""

    text: str
    document_id: str | None = None
    metadata: dict[str, Any] | None = None


class AnnifBatch(BaseModel):
    """Several texts."""

    documents: list[AnnifDocument] = Field(max_length=_MAX_DOCUMENTS, fail_fast=True)


class AnnifSubject(BaseModel):
    """A subject of a text to learn from."""

    uri: str = ""
    label: str | None = None


class AnnifSample(BaseModel):
    """A text to learn from."""

    text: str = ""
    subjects: list[AnnifSubject] = Field(default_factory=list, fail_fast=True)
    metadata: dict[str, Any] | None = None


class LanguageRequest(BaseModel):
    """A text, and the languages that it may be in."""

    text: str
    languages: list[str] = Field(min_length=1, max_length=5, fail_fast=True)


@router.get("/")
@router.get("", include_in_schema=False)
async def get_info() -> Response:
    """Return the name and version of the interface."""
    return answer_json({"title": "Annif REST API", "version": f"longtail {__version__}"})


@router.get("/projects", dependencies=[can_predict])
async def list_projects(service: Shared) -> Response:
    """List the models, as projects."""
    return answer_json({"projects": [describe_project(model, service) for model in service.models.models.values()]})


@router.get("/projects/{project_id}", dependencies=[can_predict])
async def get_project(project_id: str, service: Shared) -> Response:
    """Describe a model, as a project."""
    return answer_json(describe_project(find_project(service, project_id), service))


@router.get("/vocabs", dependencies=[can_predict])
async def list_vocabularies(service: Shared) -> Response:
    """List the labels of each model, as vocabularies."""
    return answer_json({"vocabs": [describe_project(model, service)["vocab"] for model in service.models.models.values()]})


@router.post("/projects/{project_id}/suggest", dependencies=[can_predict], openapi_extra=_FORM)
@router.post("/projects/{project_id}/analyze", dependencies=[can_predict], include_in_schema=False)
async def suggest(project_id: str, request: Request, service: Shared) -> Response:
    """Suggest subjects for a text."""
    model = find_project(service, project_id)
    fields = await asyncio.to_thread(parse_form, await request.body(), request.headers.get("content-type", ""))
    if "text" not in fields:
        raise ServiceError(400, "there is no text", hint="Send the field text")
    limit = parse_number(fields, "limit", _DEFAULT_LIMIT, 0, _MAX_LIMIT)
    threshold = parse_number(fields, "threshold", 0.0, 0, 1)
    if limit != int(limit):
        raise ServiceError(400, "limit is not an integer", hint="Send another value, or leave it out")
    check_language(model, fields.get("language", ""), service)
    found = await _suggest(service, model, [fields["text"]], int(min(limit, MAX_K)), threshold, _render_one)
    return Response(found, media_type=JSON)


@router.post("/projects/{project_id}/suggest-batch", dependencies=[can_predict])
async def suggest_batch(
    project_id: str,
    request: AnnifBatch,
    service: Shared,
    limit: Annotated[int, Query(ge=0, le=_MAX_LIMIT)] = _DEFAULT_LIMIT,
    threshold: Annotated[float, Query(ge=0, le=1)] = 0.0,
    language: str = "",
) -> Response:
    """Suggest subjects for several texts."""
    model = find_project(service, project_id)
    check_language(model, language, service)

    def render(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        pairs = zip(request.documents, answers, strict=True)
        return encode([{"results": render_subjects(model, one), "document_id": of.document_id} for of, one in pairs])

    texts = [document.text for document in request.documents]
    return Response(await _suggest(service, model, texts, min(limit, MAX_K), threshold, render), media_type=JSON)


@router.post("/projects/{project_id}/learn", status_code=204, dependencies=[can_learn])
async def learn(project_id: str, request: Annotated[list[AnnifSample], Field(fail_fast=True)], service: Shared) -> Response:
    """Record texts with their subjects, as feedback. Subjects that the model does not have are left out, as Annif does."""
    model = find_project(service, project_id)
    events = []
    for sample in request:
        names = [name for subject in sample.subjects if (name := _find_name(model, subject.uri)) is not None]
        if names and sample.text.strip():
            events.append({"text": sample.text, "accepted": sorted(set(names)), "source": "annif"})
    if events:
        await asyncio.to_thread(service.feedback.append, model, events)
    return Response(status_code=204, media_type=JSON)  # Annif's description gives nothing a type, too


@router.post("/detect-language", dependencies=[can_predict])
async def detect(request: LanguageRequest) -> Response:
    """Say how likely a text is in each of some languages."""
    if unknown := [code for code in request.languages if code not in LANGUAGES]:
        raise ServiceError(400, f'the language "{unknown[0][:20]}" is not known', hint=f"Known: {', '.join(LANGUAGES)}")
    shares = await asyncio.to_thread(compare_languages, request.text, request.languages)
    return answer_json({"results": [{"language": code, "score": round(share, 4)} for code, share in shares]})


def find_project(service: Service, project_id: str) -> ServedModel:
    """Return the model of a project."""
    if project_id not in service.models.models:
        raise ServiceError(404, f"Project '{project_id[:100]}' not found")
    return service.models.get(project_id)


def describe_project(model: ServedModel, service: Service) -> dict[str, Any]:
    """Describe a model in the words of Annif."""
    language = model.summary["language"] or service.settings.language
    size = model.summary["n_labels"]
    return {
        "project_id": model.name,
        "name": model.name,
        "language": language,
        "backend": {"backend_id": "longtail"},
        "vocab": {"vocab_id": model.name, "languages": [language], "size": size, "loaded": True},
        "vocab_language": language,
        "is_trained": True,
        "modification_time": model.trained,
    }


def check_language(model: ServedModel, language: str, service: Service) -> None:
    """Raise an error if a client wants the names of labels in a language that they are not in."""
    known = model.summary["language"] or service.settings.language
    if language not in ("", known):
        raise ServiceError(400, f'language "{language[:20]}" not supported by vocabulary', hint=f"Send {known}, or nothing")


def render_subjects(model: ServedModel, answer: TextAnswer) -> list[dict[str, Any]]:
    """Return the subjects of a text, best first."""
    labels = model.tagger.labels
    notations = labels.notations or ("",) * len(labels)
    return [
        {
            "uri": make_uri(labels, label),
            "label": labels.names[label],
            "notation": notations[label] or None,
            "score": min(score, 1.0),
        }
        for label, score in zip(answer.ids, answer.scores, strict=True)
        if score > 0
    ]


async def _suggest(
    service: Service, model: ServedModel, texts: list[str], limit: int, threshold: float, render: Render
) -> bytes:
    """Predict, or return nothing if nothing is asked for, or if a text is blank."""

    def without_blank(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        pairs = zip(texts, answers, strict=True)
        return render(model, [one if text.strip() and limit else _NOTHING for text, one in pairs])

    if not texts:
        return render(model, [])
    options = PredictOptions(k=max(limit, 1), threshold=threshold)
    return await service.predict(model, texts, options, without_blank, waits=True)


_NOTHING = TextAnswer([], [], None, None)


def _render_one(model: ServedModel, answers: list[TextAnswer]) -> bytes:
    return encode({"results": render_subjects(model, answers[0])})


def _find_name(model: ServedModel, uri: str) -> str | None:
    """Return the name of the label with a URI that this service or the vocabulary gives it; None if there is none."""
    labels = model.tagger.labels
    number = labels.keys.get(uri, find_by_urn(labels, uri))
    return None if number is None else labels.names[number]
