"""The Open Inference Protocol, version 2, below /v2: texts in, labels and scores out as tensors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from longtail import __version__
from longtail.service.answers import MAX_K, PredictOptions, TextAnswer
from longtail.service.api import JSON, Shared, answer_json, can_predict, encode
from longtail.service.bodies import JsonRoute
from longtail.service.errors import INFERENCE, ServiceError
from longtail.service.models import ServedModel
from longtail.service.state import Service
from longtail.tagger.prediction import DEFAULT_K

_INPUT = {"name": "text", "datatype": "BYTES", "shape": [-1]}
_OUTPUTS = [{"name": name, "datatype": kind, "shape": [-1, -1]} for name, kind in (("labels", "BYTES"), ("scores", "FP32"))]

router = APIRouter(prefix=INFERENCE, tags=["Open Inference Protocol"], route_class=JsonRoute)


class InputTensor(BaseModel):
    """A tensor of texts."""

    name: str
    shape: Annotated[list[int], Field(fail_fast=True)]
    datatype: str
    data: list[Any]
    parameters: dict[str, Any] | None = None


class InferParameters(BaseModel):
    """What a request asks for."""

    k: int = Field(default=DEFAULT_K, ge=1, le=MAX_K)
    threshold: float | None = Field(default=None, allow_inf_nan=False)


class InferRequest(BaseModel):
    """A request to predict labels."""

    id: str | None = None
    parameters: InferParameters | None = None
    inputs: list[InputTensor] = Field(min_length=1, max_length=1, fail_fast=True)
    outputs: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None


class InferError(BaseModel):
    """An error, as this protocol has it."""

    error: str


@router.get("")
async def describe_server() -> Response:
    """Describe the server."""
    return answer_json({"name": "longtail", "version": __version__, "extensions": []})


@router.get("/health/live")
async def is_live() -> Response:
    """Whether the process answers."""
    return answer_json({"live": True})


@router.get("/health/ready")
async def is_server_ready(service: Shared) -> Response:
    """Whether every model is loaded."""
    return answer_json({"ready": len(service.models.models) == len(service.models.folders)})


@router.get("/models/{name}", dependencies=[can_predict])
@router.get("/models/{name}/versions/{version}", dependencies=[can_predict])
async def describe_served(service: Shared, name: str, version: str | None = None) -> Response:
    """Describe a model."""
    model = _find_model(service, name, version)
    return answer_json(
        {"name": name, "versions": [model.version], "platform": "longtail", "inputs": [_INPUT], "outputs": _OUTPUTS}
    )


@router.get("/models/{name}/ready", dependencies=[can_predict])
@router.get("/models/{name}/versions/{version}/ready", dependencies=[can_predict])
async def is_model_ready(service: Shared, name: str, version: str | None = None) -> Response:
    """Whether a model is loaded."""
    _find_model(service, name, version)
    return answer_json({"name": name, "ready": True})


@router.post("/models/{name}/infer", dependencies=[can_predict])
@router.post("/models/{name}/versions/{version}/infer", dependencies=[can_predict])
async def infer(request: InferRequest, service: Shared, name: str, version: str | None = None) -> Response:
    """Predict the labels of texts. Rows are padded with empty labels and scores of 0."""
    model, (given,) = _find_model(service, name, version), request.inputs
    texts = [text for text in given.data if isinstance(text, str)]
    if given.datatype != "BYTES" or len(texts) != len(given.data) or given.shape not in ([len(texts)], [len(texts), 1]):
        raise ServiceError(400, "the input is not a tensor of texts", hint="Send datatype BYTES, shape [n], and n strings")
    wanted = {str(one.get("name")) for one in request.outputs or ()}
    if unknown := wanted - {one["name"] for one in _OUTPUTS}:
        raise ServiceError(
            400, f'there is no output "{min(unknown)[:100]}"', hint="Ask for labels, scores, or leave outputs out"
        )
    if not texts:
        raise ServiceError(400, "there are no texts", hint="Send at least one")

    def render(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        width = max(len(answer.ids) for answer in answers)
        names, shape = model.tagger.labels.names, [len(answers), width]
        labels = [[names[i] for i in answer.ids] + [""] * (width - len(answer.ids)) for answer in answers]
        scores = [answer.scores + [0.0] * (width - len(answer.scores)) for answer in answers]
        outputs = [
            {"name": "labels", "shape": shape, "datatype": "BYTES", "data": [name for row in labels for name in row]},
            {"name": "scores", "shape": shape, "datatype": "FP32", "data": [score for row in scores for score in row]},
        ]
        found = {"model_name": model.name, "model_version": model.version, "outputs": outputs}
        if wanted:
            found["outputs"] = [one for one in outputs if one["name"] in wanted]
        return encode(found if request.id is None else {**found, "id": request.id})

    options = PredictOptions(**(request.parameters or InferParameters()).model_dump())
    return Response(await service.predict(model, texts, options, render), media_type=JSON)


def _find_model(service: Service, name: str, version: str | None) -> ServedModel:
    model = service.models.get(name)
    if version not in (None, model.version):
        hint = f"Use {model.version}, or none"
        raise ServiceError(404, f"version {str(version)[:100]} of {name} is not served", hint=hint)
    return model
