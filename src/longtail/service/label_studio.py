"""The ML backend of Label Studio, below /label-studio/MODEL: predictions for tasks, and annotations as feedback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from longtail.service.answers import PredictOptions, TextAnswer
from longtail.service.api import JSON, Shared, answer_json, can_learn, can_predict, encode
from longtail.service.bodies import JsonRoute
from longtail.service.errors import ServiceError
from longtail.service.label_config import LabelControl, parse_label_config
from longtail.service.models import ServedModel

_LEARNED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_MAX_CHOICES = 1000  # choices of a configuration that predictions are restricted to

router = APIRouter(prefix="/label-studio/{name}", tags=["Label Studio"], route_class=JsonRoute)


class LabelingTask(BaseModel):
    """A task."""

    id: int | str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class TaskList(BaseModel):
    """Tasks to predict."""

    tasks: list[LabelingTask] = Field(min_length=1, fail_fast=True)
    label_config: str = Field("", max_length=10_000_000)


class Webhook(BaseModel):
    """An event in a project."""

    action: str
    project: dict[str, Any] | int | str | None = None
    task: LabelingTask | None = None
    annotation: dict[str, Any] | None = None


@router.get("/health")
@router.get("/", include_in_schema=False)
async def check_health(name: str, service: Shared) -> Response:
    """Whether there is such a model."""
    service.models.get(name)
    return answer_json({"status": "UP", "model_class": "longtail"})


@router.post("/setup", dependencies=[can_predict])
async def set_up(name: str, service: Shared) -> Response:
    """Return the version of the model. What the request contains, such as an access token, is not looked at."""
    return answer_json({"model_version": _get_version(service.models.get(name))})


@router.get("/versions", dependencies=[can_predict])
async def list_versions(name: str, service: Shared) -> Response:
    """Return the version of the model."""
    return answer_json({"versions": [_get_version(service.models.get(name))]})


@router.post("/predict", dependencies=[can_predict])
async def predict_tasks(name: str, request: TaskList, service: Shared) -> Response:
    """Predict the labels of tasks: one, or the set with the highest expected F1, as the configuration wants."""
    model, control = service.models.get(name), await asyncio.to_thread(parse_label_config, request.label_config)
    texts = [_find_text(task, control) for task in request.tasks]
    allow = _find_choices(model, control)

    def render(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        pairs = zip(texts, answers, strict=True)
        return encode({"results": [_render_task(model, control, answer if text else _NOTHING) for text, answer in pairs]})

    if control.paths and not allow:  # no choice is a label of the model
        return Response(render(model, [_NOTHING] * len(texts)), media_type=JSON)
    has_sets = model.tagger.calibration is not None and not control.is_single
    options = PredictOptions(k=None if has_sets else 1, target="expected-f1" if has_sets else None, allow=allow or None)
    return Response(await service.predict(model, texts, options, render), media_type=JSON)


@router.post("/webhook", status_code=201, dependencies=[can_learn])
async def receive_event(name: str, request: Webhook, service: Shared) -> Response:
    """Record annotations as feedback; other events are only acknowledged."""
    model = service.models.get(name)
    if request.action in _LEARNED and request.task is not None and request.annotation is not None:
        config = request.project.get("label_config", "") if isinstance(request.project, dict) else ""
        control = await asyncio.to_thread(parse_label_config, config) if config else None
        text, names = _find_text(request.task, control), sorted(set(_list_names(request.annotation)))
        if text and names:
            event = {"text": text, "accepted": names, "source": "label-studio"}
            await asyncio.to_thread(service.feedback.append, model, [event])
    return answer_json({"result": {}, "status": "ok"}, 201)


_NOTHING = TextAnswer([], [], None, None)


def _render_task(model: ServedModel, control: LabelControl, answer: TextAnswer) -> dict[str, Any]:
    """Return the prediction for a task, in the words of Label Studio."""
    names = [model.tagger.labels.names[label] for label in answer.ids]
    listed = {path[-1]: list(path) for path in reversed(control.paths)}
    value: dict[str, Any] = {"choices": names}
    if control.kind == "taxonomy":
        pairs = zip(answer.ids, names, strict=True)
        value = {"taxonomy": [listed.get(name) or [*model.catalogue.find_path(label), name] for label, name in pairs]}
    region = {"from_name": control.from_name, "to_name": control.to_name, "type": control.kind, "value": value}
    score = sum(answer.scores) / len(answer.scores) if answer.scores else 0.0
    return {
        "result": [region] if names else [],
        "score": round(min(max(score, 0.0), 1.0), 6),
        "model_version": _get_version(model),
    }


def _find_choices(model: ServedModel, control: LabelControl) -> tuple[str, ...]:
    """Return the choices of a configuration that are labels of the model; none if there are too many to restrict to."""
    names = {path[-1] for path in control.paths}
    return tuple(sorted(names & model.tagger.labels.ids.keys())) if len(names) <= _MAX_CHOICES else ()


def _find_text(task: LabelingTask, control: LabelControl | None) -> str:
    """Return the text of a task; empty if it has none."""
    found = task.data.get("text" if control is None else control.field)
    if found is None and control is None:
        found = next((value for value in task.data.values() if isinstance(value, str)), "")
    return found if isinstance(found, str) else "" if found is None else json.dumps(found, ensure_ascii=False)


def _list_names(annotation: dict[str, Any]) -> Iterator[str]:
    """Yield the labels of an annotation. Other parts of it, such as relations, have none."""
    regions = annotation.get("result") or []
    if not isinstance(regions, list):
        raise ServiceError(400, "the annotation has no list of results", hint="Send the annotation as Label Studio does")
    for region in regions:
        value = region.get("value") if isinstance(region, dict) else None
        if not isinstance(value, dict):
            continue
        paths = [path[-1:] for path in _as_list(value.get("taxonomy")) if isinstance(path, list)]
        for name in [*_as_list(value.get("choices")), *(name for path in paths for name in path)]:
            if isinstance(name, str) and name.strip():
                yield name


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _get_version(model: ServedModel) -> str:
    return f"{model.name}@{model.version}"
