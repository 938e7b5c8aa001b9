"""``POST /predict`` as servers of fastText models have it: a list of texts in, lists of labels and scores out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from longtail.service.answers import MAX_K, PredictOptions, TextAnswer
from longtail.service.api import JSON, ModelName, Shared, can_predict, encode
from longtail.service.bodies import JsonRoute
from longtail.service.models import ServedModel
from longtail.service.schemas import Texts

router = APIRouter(tags=["fastText"], route_class=JsonRoute)


class LabelsAndScores(BaseModel):
    """The labels of one text, best first."""

    labels: list[str]
    scores: list[float]


@router.post("/predict", response_model=list[LabelsAndScores], dependencies=[can_predict])
async def predict_lists(
    texts: Texts,
    service: Shared,
    k: Annotated[int, Query(ge=1, le=MAX_K)] = 1,
    threshold: Annotated[float, Query(allow_inf_nan=False)] = 0.0,
    model: ModelName = None,
) -> Response:
    """Predict the labels of texts."""

    def render(model: ServedModel, answers: list[TextAnswer]) -> bytes:
        names = model.tagger.labels.names
        return encode([{"labels": [names[i] for i in answer.ids], "scores": answer.scores} for answer in answers])

    options = PredictOptions(k=k, threshold=threshold)
    return Response(await service.predict(service.models.get(model), texts, options, render), media_type=JSON)
