"""What the routes of one service share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from longtail.service.answers import PredictOptions
from longtail.service.batching import Batcher, Render
from longtail.service.errors import NoToken, ServiceError
from longtail.service.feedback import FeedbackLog
from longtail.service.metrics import Metrics
from longtail.service.models import ModelStore, ServedModel
from longtail.service.settings import ServiceSettings


@dataclass(frozen=True)
class Service:
    """The parts of a service."""

    settings: ServiceSettings
    models: ModelStore
    batcher: Batcher
    feedback: FeedbackLog
    metrics: Metrics

    async def predict(
        self, model: ServedModel, texts: list[str], options: PredictOptions, render: Render, *, waits: bool = False
    ) -> bytes:
        """Check a request for predictions, and answer it."""
        if len(texts) > self.settings.max_texts:
            hint = f"Send at most {self.settings.max_texts:,} texts at a time"
            raise ServiceError(413, f"there are {len(texts):,} texts", hint=hint)
        options.check(len(texts))
        return await self.batcher.predict(model, texts, options, render, waits=waits)


async def get_service(request: Request) -> Service:
    """Return the service that a request is for. Not a plain function: FastAPI would call that in another thread."""
    service: Service = request.app.state.service
    return service


def require_scope(scope: str) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that refuses requests whose token does not have a scope."""

    async def check(request: Request) -> None:
        scopes = request.scope["longtail_scopes"]
        if scopes is None or scope in scopes:
            return
        if not scopes:
            raise NoToken
        raise ServiceError(403, f'the token does not have the scope "{scope}"', hint="Use another token")

    return check
