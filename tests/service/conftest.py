"""What tests of the service share: a small model with URIs, synonyms and a hierarchy, and a client without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from longtail import Dataset, Labels, Tagger
from longtail.service.app import make_app
from longtail.service.settings import ServiceSettings

LABELS = Labels(
    ("fruit", "metal", "music", "sea", "things", "art"),
    parents=(("things",), ("things",), ("art",), ("things",), (), ()),
    uris=("http://x/fruit", "http://x/metal", "http://x/music", "", "http://x/things", "http://x/art"),
    alt_names=(("fruits and nuts",), (), ("Melodies",), ("Océan",), (), ()),
    notations=("641", "", "", "551", "", ""),
)


def run_in_thread(work: Any) -> Any:
    """Run a coroutine in a thread: in the main thread, the loop of a browser may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Client:
    """Sends requests to an application, one after another or together, in one event loop.

    The loop runs in a thread: where tests of the page have run before, the browser's loop runs in the main thread.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app, self.loop, self.thread = app, asyncio.new_event_loop(), ThreadPoolExecutor(1)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60)
        self.lifespan: Any = app.router.lifespan_context(app)
        self.run(self.lifespan.__aenter__())

    def run(self, work: Any) -> Any:
        return self.thread.submit(self.loop.run_until_complete, work).result()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.run(self.http.get(path, **more))

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.run(self.http.post(path, json=json, **more))

    def close(self) -> None:
        self.run(self.lifespan.__aexit__(None, None, None))
        self.run(self.http.aclose())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        self.thread.shutdown()


@pytest.fixture(scope="session")
def tagger(train: Dataset) -> Tagger:
    labels = [[train.labels.names[i] for i in train.Y[[row]].indices] for row in range(train.n_samples)]
    data = Dataset.from_texts(train.texts, labels, known=LABELS)
    return Tagger("ovr", threads=1, min_df=1, ngrams=1, subwords=0.0, train_on_names=False).fit(data, progress=False)


@pytest.fixture(scope="session")
def folder(tagger: Tagger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "topics"
    tagger.save(path)
    return path


@pytest.fixture
def make_client(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    clients = []

    def make(folders: dict[str, Path] | None = None, **settings: Any) -> Client:
        values = {"threads": 1, "watch": 0.0, "feedback": str(tmp_path / "feedback"), **settings}
        clients.append(Client(make_app(ServiceSettings(**values), folders or {"topics": folder})))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
