"""The queue of texts, and the one thread that predicts them in batches.

The queue belongs to the event loop, which never computes: it hands batches to a thread, one at a time. Texts that wait and
have the same model and options are predicted together; nothing waits for others to arrive. A long request is predicted in
parts, between which other requests get their turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from longtail.service.answers import PredictOptions, TextAnswer, predict_texts
from longtail.service.errors import DeadlinePassed, QueueFull
from longtail.service.metrics import Metrics

if TYPE_CHECKING:
    from longtail.service.models import ServedModel

Render = Callable[["ServedModel", list[TextAnswer]], bytes]
_FIRST_GUESS = 0.002  # seconds per text, until there is a measurement
_PATIENCE = 10  # times the deadline, for clients that wait for a place in the queue
_SMOOTHING = 0.1  # weight of the last batch in the mean time per text


@dataclass(eq=False)
class Job:
    """The texts of one request."""

    model: ServedModel
    texts: list[str]
    options: PredictOptions
    render: Render  # makes the answer of the predictions, in the thread that computes
    done: asyncio.Future[bytes]
    is_alone: bool = False  # whether it is predicted separately, because a batch with it has failed
    arrived: float = field(default_factory=time.monotonic)
    n_taken: int = 0
    answers: list[TextAnswer] = field(default_factory=list)

    @property
    def n_left(self) -> int:
        """Texts that no batch has taken yet."""
        return len(self.texts) - self.n_taken

    def can_join(self, other: Job) -> bool:
        """Whether two jobs can be predicted together."""
        return self is other or (
            self.model is other.model and self.options == other.options and not (self.is_alone or other.is_alone)
        )


@dataclass(frozen=True)
class Batch:
    """Parts of jobs that are predicted together."""

    parts: list[tuple[Job, list[str]]]

    @property
    def model(self) -> ServedModel:
        """The model of all jobs."""
        return self.parts[0][0].model

    def compute(self) -> dict[Job, bytes]:
        """Predict the texts. Returns the answers to the jobs that are complete."""
        first = self.parts[0][0]
        answers = iter(predict_texts(first.model, [text for _, texts in self.parts for text in texts], first.options))
        done = {}
        for job, texts in self.parts:
            job.answers += [next(answers) for _ in texts]
            if len(job.answers) == len(job.texts):
                done[job] = job.render(job.model, job.answers)
        return done


class Batcher:
    """Takes texts, and returns answers in the order in which they are ready."""

    def __init__(self, max_batch: int, max_waiting: int, deadline: float, metrics: Metrics) -> None:
        """Make a queue.

        :param max_batch: Texts per batch.
        :param max_waiting: Texts that wait.
        :param deadline: Seconds that a request may take.
        """
        self.max_batch, self.max_waiting, self.deadline, self.metrics = max_batch, max_waiting, deadline, metrics
        self.n_waiting = 0  # texts in the queue
        self.seconds_per_text = _FIRST_GUESS
        self._jobs: deque[Job] = deque()
        self._arrived, self._freed = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "longtail-predict")

    async def predict(
        self, model: ServedModel, texts: list[str], options: PredictOptions, render: Render, *, waits: bool = False
    ) -> bytes:
        """Predict texts and return the rendered answer.

        :param waits: Whether to wait for a place in the queue if it is full, for clients that take a refusal for an answer.
        """
        job = Job(model, texts, options, render, asyncio.get_running_loop().create_future())
        seconds = self.deadline * (_PATIENCE if waits else 1)
        try:
            async with asyncio.timeout(seconds):
                while self.n_waiting + len(texts) > self.max_waiting:
                    if not waits:
                        raise QueueFull(self.n_waiting, self.n_waiting * self.seconds_per_text)
                    await self._freed.wait()
                self._jobs.append(job)
                self._count(len(texts))
                self._arrived.set()
                return await job.done
        except TimeoutError as error:
            raise DeadlinePassed(seconds) from error
        finally:
            if job.n_left and job in self._jobs:  # cancelled, or too late: not computed
                self._jobs.remove(job)
                self._count(-job.n_left)

    async def run(self) -> None:
        """Predict what arrives, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if (batch := self._take()) is None:
                self._arrived.clear()
                continue
            start = time.monotonic()
            computed = loop.run_in_executor(self._thread, batch.compute)
            await asyncio.wait([computed])
            self._finish(batch, computed, time.monotonic() - start)

    def stop(self) -> None:
        """Let the thread end after its present batch."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _take(self) -> Batch | None:
        """Take texts of jobs that can be predicted together, the first job first."""
        if not self._jobs:
            return None
        first, parts, room, now = self._jobs[0], [], self.max_batch, time.monotonic()
        for job in list(self._jobs):
            if not job.can_join(first):
                continue
            texts = job.texts[job.n_taken : job.n_taken + room]
            if not job.n_taken:
                self.metrics.queue_seconds.labels(job.model.name).observe(now - job.arrived)
            job.n_taken += len(texts)
            room -= len(texts)
            parts.append((job, texts))
            self._jobs.remove(job)
            if job.n_left:
                self._jobs.append(job)  # the rest comes after what others wait for
            if not room:
                break
        self._count(room - self.max_batch)
        return Batch(parts)

    def _finish(self, batch: Batch, computed: asyncio.Future[dict[Job, bytes]], seconds: float) -> None:
        """Deliver answers or an error. A batch of several jobs that has failed is computed again, job by job."""
        n_texts = sum(len(texts) for _, texts in batch.parts)
        self.seconds_per_text += _SMOOTHING * (seconds / n_texts - self.seconds_per_text)
        self.metrics.inference_seconds.labels(batch.model.name).observe(seconds)
        self.metrics.batch_size.labels(batch.model.name).observe(n_texts)
        error = computed.exception()
        if error is None:
            for job, content in computed.result().items():
                self.metrics.unknown.labels(job.model.name).inc(sum(answer.is_unknown for answer in job.answers))
                if not job.done.done():
                    job.done.set_result(content)
            return
        for job, _ in reversed(batch.parts):
            self._drop(job)
            if job.done.done():
                continue
            if len(batch.parts) == 1:
                job.done.set_exception(error)
            else:
                job.is_alone, job.n_taken, job.answers = True, 0, []
                self._jobs.appendleft(job)
                self._count(len(job.texts))
                self._arrived.set()

    def _drop(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            self._count(-job.n_left)

    def _count(self, n_texts: int) -> None:
        """Add to the number of texts that wait."""
        self.n_waiting += n_texts
        self.metrics.queue_depth.set(self.n_waiting)
        if n_texts < 0:
            self._freed.set()
            self._freed = asyncio.Event()
