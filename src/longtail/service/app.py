"""The application: routes, guards and errors put together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from longtail import __version__
from longtail.errors import LongtailError
from longtail.service import annif, api, fasttext, inference, label_studio
from longtail.service.api import JSON
from longtail.service.batching import Batcher
from longtail.service.errors import PROBLEM, ServiceError, answer_error, is_inference
from longtail.service.feedback import FeedbackLog
from longtail.service.inference import InferError
from longtail.service.invalid import describe_invalid
from longtail.service.limits import Guard
from longtail.service.metrics import Metrics
from longtail.service.models import ModelStore
from longtail.service.pages import make_page_router
from longtail.service.schemas import Problem
from longtail.service.settings import ServiceSettings, split_list
from longtail.service.state import Service
from longtail.service.tokens import read_tokens

_ERRORS = {
    "400": "The request cannot be answered as it is",
    "401": "There is no valid token",
    "403": "The token does not have the scope",
    "404": "There is no such model, label or address",
    "408": "The request did not arrive in time",
    "409": "The model on disk cannot be loaded",
    "413": "The request is too large",
    "421": "The service is not known by this name",
    "422": "A value has the wrong type, or is outside of its limits",
    "429": "Too many texts wait already",
    "503": "The service is not ready",
    "504": "There was no answer in time",
}


def make_app(settings: ServiceSettings, folders: Mapping[str, Path]) -> FastAPI:
    """Build the application. The models are loaded here, so that errors appear before anything listens.

    :param settings: The settings.
    :param folders: The folders of the models by name.
    """
    metrics = Metrics()
    models = ModelStore(folders, settings.threads, metrics)
    tokens = None if settings.token_file is None else read_tokens(settings.token_file)
    models.load_all()

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        batcher = Batcher(settings.max_batch, settings.max_waiting, settings.deadline, metrics)
        app.state.service = Service(settings, models, batcher, FeedbackLog(settings.feedback, metrics), metrics)
        tasks = {asyncio.create_task(batcher.run())}
        if settings.watch:
            tasks.add(asyncio.create_task(models.watch(settings.watch)))
        _reload_on_hangup(models, tasks)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        batcher.stop()

    app = FastAPI(title="longtail", version=__version__, docs_url=None, redoc_url=None, lifespan=run)
    others = (annif.router, label_studio.router, inference.router, fasttext.router)
    for router in (api.router, api.metrics_router, *others, make_page_router()):
        app.include_router(router)
    app.add_exception_handler(LongtailError, _answer_library_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_middleware(Guard, settings=settings, tokens=tokens, metrics=metrics)
    if settings.cors:  # around the guard: a page must be able to read why a request was refused
        origins, shown = list(split_list(settings.cors)), ["Retry-After", "X-Request-ID"]
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=shown
        )
    _describe_errors(app)
    return app


def _reload_on_hangup(models: ModelStore, tasks: set[asyncio.Task[None]]) -> None:
    """Load models again on SIGHUP, where there is such a signal."""
    loop = asyncio.get_running_loop()

    def reload() -> None:
        task = loop.create_task(models.try_reload_all())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):  # not the main thread, or Windows
        loop.add_signal_handler(signal.SIGHUP, reload)


async def _answer_library_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LongtailError)
    return answer_error(error, request.url.path)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer a request for an address that does not exist, or does not take its method."""
    assert isinstance(error, HTTPException)
    found, hint, headers = str(error.detail), "See /openapi.json", dict(error.headers or {})
    if error.status_code == 400:  # what FastAPI raises if JSON cannot be parsed for another reason than its grammar
        found, hint = (
            "the request cannot be read as JSON",
            "Send UTF-8, without deep nesting or numbers of thousands of digits",
        )
    elif error.status_code == 404:
        found = "there is no such address"
    elif error.status_code == 405:
        found = f"this address does not take {request.method}"
        hint = f"Use {headers['Allow']}. {hint}" if headers.get("Allow") else hint
    return answer_error(ServiceError(error.status_code, found, hint=hint), request.url.path, headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    path = request.url.path
    status = 400 if is_inference(path) or path.startswith(f"{annif.router.prefix}/") else 422  # as Annif answers
    found = describe_invalid(error.errors(), status, request.headers.get("content-type", ""))
    return answer_error(found, path)


def _describe_errors(app: FastAPI) -> None:
    """Add the errors to the description of every route."""
    build = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build()
            known = schema.setdefault("components", {}).setdefault("schemas", {})
            known["Problem"] = Problem.model_json_schema()
            for name in ("HTTPValidationError", "ValidationError"):
                known.pop(name, None)
            known["InferError"] = InferError.model_json_schema()
            problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            other = {JSON: {"schema": {"$ref": "#/components/schemas/InferError"}}}
            for path, operations in schema["paths"].items():
                content = other if is_inference(path) else problem
                for operation in operations.values():
                    operation["responses"] |= {
                        code: {"description": text, "content": content} for code, text in _ERRORS.items()
                    }
            _describe_tokens(schema)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _describe_tokens(schema: dict[str, Any]) -> None:
    schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{}, {"token": []}]
