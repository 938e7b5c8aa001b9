"""A service with the interface of ``longtail serve`` and made-up data: a million labels, and names of 200 characters.

To look at the page without a model: ``python tests/service/page/fake_service.py``.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = Path(__file__).parents[3] / "src" / "longtail" / "service" / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

FIELDS = ["Marine", "Medieval", "Urban", "Alpine", "Comparative", "Industrial", "Arctic", "Colonial", "Rural", "Applied"]
THINGS = ["biology", "history", "geology", "music", "law", "medicine", "trade", "botany", "painting", "education"]
TOPICS = ["harbours", "ships", "tides", "trade routes", "sailors", "maps", "storms", "fish", "reefs", "lighthouses"]
PLACES = [f"region {number}" for number in range(1000)]
LEVELS = (100, 10, 1000)  # 100 roots, each with 10 narrower labels, each with 1,000: a million at the lowest level
MARKUP = '<img src="x" onerror="document.title = 1"><b>bold</b>'  # a name that must be shown as it is
PADDING = (
    "and the documented practice of describing, arranging and preserving such collections for readers of later centuries "
)


def name_label(path: tuple[int, ...]) -> str:
    """The name of the label that is reached by these positions, one for each level."""
    name = f"{FIELDS[path[0] // 10]} {THINGS[path[0] % 10]}"
    if len(path) > 1:
        name = f"{TOPICS[path[1]].capitalize()} in {name.lower()}"
    if len(path) > 2:
        name = f"{name}: {PLACES[path[2]]}"
    return name


def describe(path: tuple[int, ...], long: bool = False) -> dict[str, Any]:
    label = lengthen(name_label(path)) if long else name_label(path)
    return {
        "label": label,
        "id": "http://example.org/" + "/".join(map(str, path)),
        "path": [lengthen(name_label(path[:i])) if long else name_label(path[:i]) for i in range(1, len(path))],
        "n_samples": 90_000 // (1 + sum(path) + 17 * len(path)),
    }


def lengthen(name: str, length: int = 200) -> str:
    return f"{name}, {PADDING * 2}"[: length - 1] + "."


def find_path(label: str) -> tuple[int, ...]:
    """The inverse of ``name_label``; the names of the model ``long-names`` have a suffix."""
    label = re.sub(r", and the documented.*", "", label)
    head, _, place = label.partition(": ")
    topic, found, field = head.partition(" in ")
    words = (field if found else head).split()
    path = [FIELDS.index(words[0].capitalize()) * 10 + THINGS.index(words[1])]
    if found:
        path.append(TOPICS.index(topic.lower()))
    if place:
        path.append(PLACES.index(place))
    return tuple(path)


def make_card(name: str, n_labels: int, score: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "spec": "plt+beam=20",
        "method": "plt",
        "version": "3f2a91c",
        "trained": "2026-11-02T09:30:00Z",
        "n_labels": n_labels,
        "n_samples": 1_240_518,
        "language": "en",
        "score": score,
        "has_parents": True,
        "reads": "texts",
        **more,
    }


CARDS = {
    "million": make_card("million", 1_001_100, "probability"),
    "long-names": make_card("long-names", 1_001_100, "probability", spec="ovr", method="ovr", version="b07c4de"),
    "margins": make_card(
        "margins", 1_001_100, "margin", spec="glas", method="glas", has_parents=False, trained=None, language=None
    ),
    "vectors": make_card("vectors", 159, "margin", reads="vectors", has_parents=False),
}


FIGURES = {"P@1": 71.4, "P@3": 58.2, "P@5": 47.9, "precision": 61.3, "recall": 57.8, "labels per text": 3.2}


def make_details(name: str) -> dict[str, Any]:
    long = name == "long-names"
    bins = [{"score": 0.05 + 0.1 * i, "right": 0.06 + 0.093 * i, "n": 9000 // (1 + 3 * i)} for i in range(10)]
    return {
        **CARDS[name],
        "settings": {"beam": 20, "C": 1.0, "ngrams": [1, 2], "min_df": 2, "tree": "clusters", "label_names": "long " * 8},
        "figures": {} if name == "margins" else FIGURES,
        "held_out": "5,000 training samples, predicted by a second model of 372,155 others",
        "calibration": None if name == "margins" else {"bins": bins, "ece": 0.012},
        "largest": [{key: describe((i, i % 10), long)[key] for key in ("label", "n_samples")} for i in range(20)],
        "decisions": [
            "Pairs of words are used: 18.2 per text occur at least twice.",
            "C is 1.0: P@1 of 71.0 on held-out texts.",
        ],
        "history": ["2026-11-03 renamed “Ship” to “Ships”", "2026-11-05 merged “Boats” into “Ships”"],
        "size_mb": 812.4,
    }


def find_parts(text: str, rank: int) -> list[dict[str, Any]]:
    """Every third word is evidence, by turns for other ranks; one part is against."""
    words = list(re.finditer(r"\w+", text))
    chosen = [word for i, word in enumerate(words) if i % 7 in (rank % 7, (rank + 3) % 7)][:6]
    return [{"start": word.start(), "end": word.end(), "weight": 1.2 / (i + 1) - 0.25} for i, word in enumerate(chosen)]


def predict_one(text: str, model: str, k: int, explain: bool) -> dict[str, Any]:
    """Labels that depend on the text, with falling scores."""
    seed = sum(map(ord, text))
    shift = {"million": 0, "long-names": 4}.get(model, 2)
    labels, total = [], 0.0
    for rank in range(k):
        i = seed + 13 * (rank + shift)
        path = (i % 100, (i // 7) % 10, (i * 31) % 1000)[: 3 if rank % 4 else 2]
        score = 0.97 * 0.82**rank
        total += score
        one = {**describe(path, model == "long-names"), "score": score if model != "margins" else 4 * score - 2}
        if model != "margins":
            one["expected_precision"] = total / (rank + 1)
        if explain:
            one["parts"] = find_parts(text, rank)
        labels.append(one)
    if "MARKUP" in text:
        labels[0] |= {"label": MARKUP, "path": [MARKUP]}
    words = re.findall(r"\w+", text)
    unknown = sum(len(word) > 9 for word in words)
    return {"labels": labels, "unknown": {"n_words": len(words), "n_unknown": unknown}}


def search_labels(model: str, query: str, by: str, limit: int) -> list[dict[str, Any]]:
    long = model == "long-names"
    folded = query.lower()
    found: list[dict[str, Any]] = []
    if ": region" in query:
        return [{**describe(find_path(query), long), "matched": query}]
    for root in range(LEVELS[0]):
        for child in range(LEVELS[1]):
            paths = [(root,)] if child == 0 else []
            paths += [(root, child), *((root, child, i) for i in range(3))]
            for path in paths:
                name = name_label(path)
                synonym = name.replace("Ships", "Vessels")
                matched = next((one for one in (name, synonym) if one.lower().startswith(folded)), None)
                if by == "meaning" and not matched and set(folded.split()) & set(name.lower().split()):
                    matched = name
                if matched:
                    found.append(
                        {**describe(path, long), "matched": matched if matched != name else describe(path, long)["label"]}
                    )
                if len(found) == limit:
                    return found
    return found


class Handler(BaseHTTPRequestHandler):
    """Answers requests; the server holds what was sent, and what to answer."""

    server: Service
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def reply(self, content: Any, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status: int, title: str, detail: str, hint: str = "", **headers: str) -> None:
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail, "hint": hint}
        self.reply(problem, status, "application/problem+json", **headers)

    def refused(self) -> bool:
        """Whether the token is wrong, which is answered."""
        if not self.server.token or self.headers.get("Authorization") == f"Bearer {self.server.token}":
            return False
        self.fail(401, "Unauthorized", "a token is needed", "Send it as Authorization: Bearer …")
        return True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        given = {key: values[0] for key, values in parse_qs(url.query).items()}
        if not url.path.startswith("/api/"):
            path = PAGE / ("index.html" if url.path == "/" else url.path.removeprefix("/page/"))
            if path.is_file():
                return self.reply(path.read_bytes(), kind=TYPES[path.suffix])
            return self.fail(404, "Not Found", f"there is no {url.path}")
        if self.refused():
            return None
        route = url.path.removeprefix("/api/v1/")
        if route == "models":
            return self.reply({"models": [CARDS[name] for name in self.server.models], "default": self.server.models[0]})
        if route.startswith("models/"):
            return self.reply(make_details(route.removeprefix("models/")))
        if route == "labels":
            found = search_labels(given["model"], given["q"], given.get("by", "prefix"), int(given.get("limit", 20)))
            return self.reply({"labels": found})
        if route == "labels/tree":
            return self.reply(self.list_children(given))
        return self.fail(404, "Not Found", f"there is no {route}")

    def list_children(self, given: dict[str, str]) -> dict[str, Any]:
        long = given["model"] == "long-names"
        parent = find_path(given["parent"]) if "parent" in given else ()
        offset, limit, total = int(given.get("offset", 0)), int(given.get("limit", 200)), LEVELS[len(parent)]
        labels = []
        for position in range(offset, min(offset + limit, total)):
            path = (*parent, position)
            narrower = LEVELS[len(path)] if len(path) < len(LEVELS) else 0
            labels.append({**describe(path, long), "n_children": narrower})
        return {"labels": labels, "total": total}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return None
        if self.path == "/api/v1/feedback":
            self.server.feedback.append(body)
            return self.reply({"id": str(len(self.server.feedback))}, 201)
        self.server.predictions.append(body)
        if self.server.busy:
            self.server.busy -= 1
            return self.fail(429, "Too Many Requests", "the queue is full", Retry_After="0")
        if any("FAIL" in text for text in body["texts"]):
            return self.fail(422, "Unprocessable", "the text cannot be read", "Send another text")
        if "allow" in body and len(find_path(body["allow"][0])) == 1:
            return self.fail(400, "Bad Request", "none of the labels that may be predicted is allowed")
        if len(self.server.predictions) > self.server.answers:
            self.server.released.wait(30)
        time.sleep(self.server.delay)
        model, k, explain = body.get("model", self.server.models[0]), body.get("k", 5), body.get("explain", False)
        results = [predict_one(text, model, k, explain) for text in body["texts"]]
        if "allow" in body:
            results[0]["labels"][0] |= {**describe(find_path(body["allow"][0])), "score": 0.015}
        return self.reply({"model": model, "version": CARDS[model]["version"], "results": results})


class Service(ThreadingHTTPServer):
    """The server, and what was sent to it."""

    daemon_threads = True

    def __init__(self, port: int = 0, models: tuple[str, ...] = tuple(CARDS), token: str = "") -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.served, self.token = models, token
        self.reset()

    def reset(self) -> None:
        self.models = self.served
        self.feedback: list[dict[str, Any]] = []
        self.predictions: list[dict[str, Any]] = []
        self.busy = 0  # predictions to refuse
        self.delay = 0.0  # seconds for each prediction
        self.answers = math.inf  # predictions after which the others wait until they are released
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


@contextmanager
def run_service(**settings: Any) -> Iterator[Service]:
    service = Service(**settings)
    thread = threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


if __name__ == "__main__":
    with run_service(port=8765) as running:
        print(running.url)
        threading.Event().wait()
