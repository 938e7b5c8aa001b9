"""Metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_LATEST
from prometheus_client.exposition import generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one service. Routes are templates, such as ``/api/v1/models/{name}``, never addresses."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def measure(name: str, doc: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"longtail_{name}", doc, labels, registry=registry, buckets=buckets)

        self.requests = Counter("longtail_requests", "Requests", ["route", "code"], registry=registry)
        self.request_seconds = measure(
            "request_seconds", "From the first byte of a request to the end of its answer", "route"
        )
        self.queue_seconds = measure("queue_seconds", "Time that texts wait for their prediction", "model")
        self.inference_seconds = measure("inference_seconds", "Time of one prediction of a batch", "model")
        self.batch_size = measure("batch_size", "Texts that are predicted together", "model", buckets=_SIZES)
        self.queue_depth = Gauge("longtail_queue_depth", "Texts that wait", registry=registry)
        self.model_info = Gauge("longtail_model_info", "The models", ["model", "version"], registry=registry)
        self.reloads = Counter("longtail_model_reloads", "Models that were loaded again", ["result"], registry=registry)
        self.unknown = Counter("longtail_unknown_texts", "Texts without a known word", ["model"], registry=registry)
        self.feedback = Counter("longtail_feedback", "Labels in feedback", ["verdict"], registry=registry)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
