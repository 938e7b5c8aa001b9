"""Our own interface, below /api/v1."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from longtail.service.answers import PredictOptions, TextAnswer, write_answer
from longtail.service.bodies import JsonRoute
from longtail.service.errors import ServiceError
from longtail.service.metrics import CONTENT_TYPE_LATEST
from longtail.service.models import ServedModel
from longtail.service.schemas import (
    FeedbackReceipt,
    FeedbackRequest,
    Health,
    LabelLevel,
    LabelList,
    ModelCard,
    ModelList,
    PredictRequest,
    PredictResponse,
    ReloadRequest,
)
from longtail.service.state import Service, get_service, require_scope

JSON = "application/json"
_MAX_FOUND = 200
_MAX_LEVEL = 1000
Shared = Annotated[Service, Depends(get_service)]
ModelName = Annotated[str | None, Query(description="Name of a model. Default: the first one")]
can_predict, can_learn, can_manage = (Depends(require_scope(scope)) for scope in ("predict", "learn", "admin"))

router = APIRouter(prefix="/api/v1", tags=["longtail"], route_class=JsonRoute)


@router.post("/predict", response_model=PredictResponse, dependencies=[can_predict])
async def predict(request: PredictRequest, service: Shared) -> Response:
    """Predict the labels of texts."""
    options = PredictOptions(
        k=request.k,
        target=request.target,
        threshold=request.threshold,
        allow=None if request.allow is None else tuple(request.allow),
        deny=tuple(request.deny or ()),
        subtree=None if request.subtree is None else (request.subtree,),
        explain=request.explain,
    )
    model = service.models.get(request.model)
    return Response(await service.predict(model, request.texts, options, render_results), media_type=JSON)


def render_results(model: ServedModel, answers: list[TextAnswer]) -> bytes:
    """Write the answer to a request for predictions."""
    results = ", ".join(write_answer(model, answer) for answer in answers)
    return f'{{"model": "{model.name}", "version": "{model.version}", "results": [{results}]}}'.encode("utf-8", "replace")


@router.get("/labels", response_model=LabelList, dependencies=[can_predict])
async def search_labels(
    service: Shared,
    q: Annotated[str, Query(max_length=500)] = "",
    model: ModelName = None,
    by: Literal["prefix", "meaning"] = "prefix",
    limit: Annotated[int, Query(ge=1, le=_MAX_FOUND)] = 20,
) -> Response:
    """Search for labels: by the beginning of a name or synonym, or by meaning: those that the model gives to the words."""
    found = service.models.get(model)
    if by == "prefix":
        matches = await asyncio.to_thread(found.catalogue.search, q, limit)
        return answer_json({"labels": [{**found.catalogue.describe(label), "matched": name} for label, name in matches]})

    def render(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        names = model.tagger.labels.names
        return encode({"labels": [{**model.catalogue.describe(i), "matched": names[i]} for i in answers[0].ids]})

    return Response(await service.predict(found, [q], PredictOptions(k=limit), render), media_type=JSON)


@router.get("/labels/tree", response_model=LabelLevel, dependencies=[can_predict])
async def list_level(
    service: Shared,
    model: ModelName = None,
    parent: Annotated[str | None, Query(max_length=2000, description="A label. Default: labels without parents")] = None,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_LEVEL)] = 200,
) -> Response:
    """List the labels directly below another one."""
    catalogue = service.models.get(model).catalogue

    def read() -> dict[str, Any]:
        level = catalogue.list_children(parent)
        labels = [catalogue.describe_node(label) for label in level[offset : offset + limit].tolist()]
        return {"labels": labels, "total": len(level)}

    return answer_json(await asyncio.to_thread(read))


@router.get("/models", response_model=ModelList, dependencies=[can_predict])
async def list_models(service: Shared) -> Response:
    """List the models."""
    summaries = [model.summary for model in service.models.models.values()]
    return answer_json({"models": summaries, "default": service.models.default})


@router.get("/models/{name}", response_model=ModelCard, dependencies=[can_predict])
async def get_card(name: str, service: Shared) -> Response:
    """Return everything about a model."""
    return answer_json(service.models.get(name).card)


@router.post("/feedback", response_model=FeedbackReceipt, status_code=201, dependencies=[can_learn])
async def give_feedback(request: FeedbackRequest, service: Shared) -> Response:
    """Record what a person said about the labels of a text."""
    model = service.models.get(request.model)
    event = request.model_dump(exclude={"model", "version", "consent"})
    event["text"] = request.text if request.consent and request.text and request.text.strip() else None
    event |= {} if request.version is None else {"version": request.version}
    (id,) = await asyncio.to_thread(service.feedback.append, model, [event])
    return answer_json({"id": id}, 201)


@router.get("/health/live", response_model=Health)
async def is_alive() -> Response:
    """Whether the process answers."""
    return answer_json({"status": "ok"})


@router.get("/health/ready", response_model=Health)
async def is_ready(service: Shared) -> Response:
    """Whether every model is loaded."""
    if len(service.models.models) < len(service.models.folders):
        raise ServiceError(503, "models are being loaded", hint="Try again later", retry_after=1)
    return answer_json({"status": "ok"})


@router.post("/admin/reload", response_model=ModelList, dependencies=[can_manage])
async def reload(service: Shared, request: ReloadRequest | None = None) -> Response:
    """Load models again from their folders. If one cannot be loaded, the present one stays."""
    names = list(service.models.folders) if request is None or request.model is None else [request.model]
    for name in names:
        try:
            await service.models.reload(name)
        except OSError as error:
            raise ServiceError(409, f"the model {name} cannot be read ({error.strerror})") from error
    return await list_models(service)


metrics_router = APIRouter(tags=["metrics"])


@metrics_router.get("/metrics", dependencies=[can_predict], response_class=Response)
async def get_metrics(service: Shared) -> Response:
    """Metrics for Prometheus."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


def encode(value: Any) -> bytes:
    """Write JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def answer_json(value: Any, status: int = 200) -> Response:
    """Build an answer with a JSON body."""
    return Response(encode(value), status, media_type=JSON)
