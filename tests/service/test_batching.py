"""Under load: texts are joined, the queue is bounded in texts, and what nobody waits for is not computed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from longtail.service import batching
from longtail.service.answers import PredictOptions, TextAnswer
from service.conftest import Client

PREDICT = "/api/v1/predict"


class Blocked:
    """Predictions that wait until they may go on, and remember what they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.open = threading.Event()
        self.began = threading.Event()
        self.real = batching.predict_texts
        monkeypatch.setattr(batching, "predict_texts", self)

    def __call__(self, model: Any, texts: list[str], options: PredictOptions) -> list[TextAnswer]:
        self.batches.append(list(texts))
        self.began.set()
        assert self.open.wait(30)
        if "fail" in texts and len(texts) > 1:
            raise ValueError("a batch that fails")
        return self.real(model, texts, options)

    async def wait(self) -> None:
        await asyncio.to_thread(self.began.wait, 30)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    return Blocked(monkeypatch)


def start(client: Client, *texts: str, path: str = PREDICT, **more: Any) -> asyncio.Task[Any]:
    return client.loop.create_task(client.http.post(path, json={"texts": texts, **more}))


async def settle(client: Client, n_waiting: int) -> None:
    """Wait until as many texts are in the queue."""
    async with asyncio.timeout(30):
        while client.app.state.service.batcher.n_waiting != n_waiting:
            await asyncio.sleep(0.005)


def test_waiting_texts_with_the_same_options_are_predicted_together(client: Client, blocked: Blocked) -> None:
    async def work() -> None:
        first = start(client, "ship")
        await blocked.wait()
        others = [start(client, "apple"), start(client, "iron", k=2), start(client, "violin", "tune")]
        await settle(client, 4)
        blocked.open.set()
        answers = [(await task).json() for task in (first, *others)]
        assert blocked.batches == [["ship"], ["apple", "violin", "tune"], ["iron"]]
        labels = [[result["labels"][0]["label"] for result in answer["results"]] for answer in answers]
        assert labels == [["sea"], ["fruit"], ["metal"], ["music", "music"]]
        assert len(answers[2]["results"][0]["labels"]) == 2

    client.run(work())


def test_a_long_request_lets_others_take_their_turn(make_client: Callable[..., Client], blocked: Blocked) -> None:
    client = make_client(max_batch=2)

    async def work() -> None:
        long = start(client, "a", "b", "c", "d", "e", k=1)
        await blocked.wait()
        short = start(client, "ship", k=2)
        await settle(client, 4)
        blocked.open.set()
        assert (await short).status_code == 200 and len((await long).json()["results"]) == 5
        assert blocked.batches == [["a", "b"], ["c", "d"], ["ship"], ["e"]]  # the rest goes to the end of the queue

    client.run(work())


def test_a_full_queue_refuses_and_says_when_to_come_back(make_client: Callable[..., Client], blocked: Blocked) -> None:
    client = make_client(max_waiting=3, max_texts=3)

    async def work() -> None:
        first = start(client, "a")
        await blocked.wait()
        waiting = start(client, "b", "c", "d")
        await settle(client, 3)
        refused = await start(client, "e")
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert "3 texts wait" in refused.json()["detail"]
        form = client.loop.create_task(client.http.post("/v1/projects/topics/suggest", data={"text": "ship"}))
        await asyncio.sleep(0.05)
        assert not form.done()  # Annif would take a refusal for a text without subjects
        blocked.open.set()
        assert (await form).json()["results"][0]["label"] == "sea"
        assert [(await task).status_code for task in (first, waiting)] == [200, 200]

    client.run(work())


def test_a_request_that_takes_too_long_fails_and_is_not_computed(
    make_client: Callable[..., Client], blocked: Blocked
) -> None:
    client = make_client(deadline=0.5)

    async def work() -> None:
        answers = await asyncio.gather(start(client, "first"), start(client, "late", k=2))
        assert [answer.status_code for answer in answers] == [504, 504]
        assert client.app.state.service.batcher.n_waiting == 0
        blocked.open.set()
        client.app.state.service.batcher.deadline = 60.0  # other programs may use all cores
        assert (await start(client, "next")).status_code == 200
        assert blocked.batches == [["first"], ["next"]]

    client.run(work())


def test_a_cancelled_request_is_not_computed(client: Client, blocked: Blocked) -> None:
    async def work() -> None:
        first = start(client, "first")
        await blocked.wait()
        gone = start(client, "gone", k=2)
        await settle(client, 1)
        gone.cancel()
        await settle(client, 0)
        blocked.open.set()
        assert (await first).status_code == 200
        assert (await start(client, "next")).status_code == 200
        assert blocked.batches == [["first"], ["next"]]

    client.run(work())


def test_one_bad_request_does_not_fail_those_that_it_was_joined_with(
    client: Client, blocked: Blocked, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        first = start(client, "first")
        await blocked.wait()
        others = [start(client, "ship"), start(client, "secret fail", "fail"), start(client, "iron")]
        await settle(client, 4)
        blocked.open.set()
        statuses = [(await task).status_code for task in (first, *others)]
        assert statuses == [200, 200, 500, 200]
        assert blocked.batches[2:] == [["ship"], ["secret fail", "fail"], ["iron"]]
        problem = (await start(client, "a", "fail")).json()
        assert problem["title"] == "Internal Server Error" and "fails" not in str(problem)

    client.run(work())
    assert "ValueError at" in caplog.text and "secret" not in caplog.text


def test_nothing_is_lost_among_many_requests(make_client: Callable[..., Client]) -> None:
    client = make_client(max_batch=7, max_waiting=10_000)

    async def work() -> None:
        tasks = [start(client, *["ship", "apple"][: 1 + n % 2], k=1 + n % 3) for n in range(200)]
        for n, task in enumerate(tasks):
            results = (await task).json()["results"]
            assert [len(result["labels"]) for result in results] == [1 + n % 3] * (1 + n % 2)
            assert results[0]["labels"][0]["label"] == "sea"
        assert client.app.state.service.batcher.n_waiting == 0

    client.run(work())
