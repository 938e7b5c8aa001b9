"""Our own interface: every route, with what it takes, returns and refuses."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import longtail
from longtail import Tagger
from service.conftest import Client

TEXT = "a ship in the harbour, waves and a violin"


def test_predictions_are_those_of_the_tagger(client: Client, tagger: Tagger) -> None:
    texts = [TEXT, "ripe apple juice", "iron ore"]
    for options in ({}, {"k": 2}, {"threshold": 0.3}, {"target": "expected-f1"}, {"k": 1, "target": "recall=0.5"}):
        answer = client.post("/api/v1/predict", {"texts": texts, **options}).json()
        expected = tagger.predict(texts, **options)
        found = [[(one["label"], one["score"]) for one in result["labels"]] for result in answer["results"]]
        assert found == [[(tag.label, round(tag.score, 6)) for tag in tags] for tags in expected]
    assert answer["model"] == "topics" and len(answer["version"]) == 12


def test_a_label_has_its_uri_path_samples_and_expected_precision(client: Client, tagger: Tagger) -> None:
    labels = client.post("/api/v1/predict", {"texts": [TEXT], "k": 2}).json()["results"][0]["labels"]
    by_name = {one["label"]: one for one in labels}
    assert by_name["sea"]["id"] == "sea" and by_name["music"]["id"] == "http://x/music"  # one without a URI
    assert by_name["sea"]["path"] == ["things"] and by_name["music"]["path"] == ["art"]
    assert by_name["sea"]["n_samples"] == tagger.pipeline.label_counts[tagger.labels.ids["sea"]]
    assert labels[0]["expected_precision"] == pytest.approx(labels[0]["score"], abs=1e-4)
    assert labels[1]["expected_precision"] == pytest.approx((labels[0]["score"] + labels[1]["score"]) / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"allow": ["metal", "http://x/fruit"]}, {"metal", "fruit"}),
        ({"deny": ["se*", "music"]}, {"fruit", "metal"}),
        ({"subtree": "art"}, {"music"}),
        ({"subtree": "art", "allow": ["551"]}, {"music", "sea"}),
    ],
)
def test_constraints(client: Client, options: dict[str, object], names: set[str]) -> None:
    labels = client.post("/api/v1/predict", {"texts": [TEXT], "k": 10, **options}).json()["results"][0]["labels"]
    assert {one["label"] for one in labels} == names


def test_evidence_has_the_place_in_the_text(client: Client) -> None:
    answer = client.post("/api/v1/predict", {"texts": ["\U0001d538 ship"], "k": 1, "explain": True}).json()
    (label,) = answer["results"][0]["labels"]
    assert label["label"] == "sea"
    assert [(part["start"], part["end"]) for part in label["parts"]] == [(2, 6)]  # code points, not UTF-16


def test_unknown_words_are_counted(client: Client) -> None:
    known, partly, unknown = client.post("/api/v1/predict", {"texts": ["ship sail", "ship qq ww", "qq ww"]}).json()[
        "results"
    ]
    assert known["unknown"] == {"n_words": 2, "n_unknown": 0} and "warning" not in known
    assert partly["unknown"] == {"n_words": 3, "n_unknown": 2} and "2 of the 3 words" in partly["warning"]
    assert "knows no word" in unknown["warning"]


@pytest.mark.parametrize(
    ("body", "status", "found"),
    [
        ({}, 422, "texts is missing"),
        ({"texts": []}, 422, "texts must have at least 1 element"),
        ({"texts": "one"}, 422, "texts must be a list"),
        ({"texts": [1]}, 422, "texts.0 must be a string"),
        ({"texts": ["a"], "k": 0}, 422, "k must be at least 1"),
        ({"texts": ["a"], "k": 1001}, 422, "k must be at most 1000"),
        ({"texts": ["a"], "k": 1.5}, 422, "k must be an integer"),
        ({"texts": ["a"], "threshold": "high"}, 422, "threshold must be a number"),
        ({"texts": ["a"], "threshold": float("nan")}, 422, "threshold must be a finite number"),
        ({"texts": ["a"], "explain": 1}, 422, "explain must be true or false"),
        ({"texts": ["a"], "allow": [""]}, 422, "allow.0 must have at least 1 character"),
        ({"texts": ["a"], "allow": ["a"] * 1001}, 422, "allow must have at most 1,000 elements"),
        ({"texts": ["a"], "allow": ["\ud800"]}, 422, "allow.0 has half of a character"),
        ({"texts": ["a"], "kk": 1}, 422, 'there is no field "kk"'),
        ({"texts": ["a"], "model": "no"}, 404, 'there is no model "no"'),
        ({"texts": ["a"], "target": "best"}, 400, "best"),
        ({"texts": ["a"], "target": "count=3", "threshold": 0.1}, 400, "both a target and a threshold"),
        ({"texts": ["a"], "target": "precision=0.999"}, 400, "cannot be promised"),
        ({"texts": ["a"], "allow": ["sae"]}, 400, 'there is no label "sae"'),
        ({"texts": ["a"], "allow": ["zz*"]}, 400, "no label matches"),
        ({"texts": ["a"], "allow": ["art"]}, 400, "allowed"),  # a label without training samples
        ({"texts": ["a", "b"], "explain": True}, 400, "2 texts cannot be explained"),
        ({"texts": ["a"], "explain": True, "k": 51}, 400, "k is 51"),
        ({"texts": ["a"] * 1001}, 413, "1,001 texts"),
        ({"texts": ["a"] * 200, "k": 1000}, 400, "too many"),
        ({"texts": ["a \ud800"]}, 400, "lone surrogate"),
        ({"texts": ["a"], "model": "\ud800"}, 404, "there is no model"),
    ],
)
def test_bad_requests_are_problems(client: Client, body: dict[str, object], status: int, found: str) -> None:
    content = json.dumps(body).encode()
    answer = client.run(client.http.post("/api/v1/predict", content=content, headers={"content-type": "application/json"}))
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert found in problem["detail"] and problem["title"] and problem["hint"]


@pytest.mark.parametrize(
    ("content", "kind", "detail", "hint"),
    [
        (
            b'{"texts": ["a"',
            "application/json",
            "the request is not JSON (Expecting ',' delimiter, at character 14)",
            "/openapi",
        ),
        (
            b'{"texts": ["a"]}',
            "application/x-www-form-urlencoded",
            "does not say that it is JSON",
            "Content-Type: application",
        ),
        (b'{"texts": ["a"]}', "", "does not say that it is JSON", "Content-Type: application/json"),
        (b"[]", "application/json; charset=utf-8", "the request must be an object", "/openapi.json"),
        (b"", "application/json", "the request is missing", "/openapi.json"),
        (b'{"text": "secret"}', "application/json; charset=utf-8", 'there is no field "text"', 'Did you mean "texts"?'),
    ],
)
def test_a_request_that_cannot_be_read_says_why(client: Client, content: bytes, kind: str, detail: str, hint: str) -> None:
    answer = client.run(client.http.post("/api/v1/predict", content=content, headers={"content-type": kind}))
    problem = answer.json()
    assert answer.status_code == 422 and detail in problem["detail"] and hint in problem["hint"]
    assert "secret" not in answer.text


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[" * 600_000, b'{"k": ' + b"9" * 5000 + b"}", b'{"texts": ["\xff"]}'])
def test_json_that_cannot_be_parsed_is_no_error_of_the_service(client: Client, content: bytes) -> None:
    answer = client.run(client.http.post("/api/v1/predict", content=content, headers={"content-type": "application/json"}))
    assert answer.status_code == 400 and answer.json()["detail"] == "the request cannot be read as JSON"


def test_addresses_and_values_that_do_not_exist_are_named(client: Client) -> None:
    assert client.get("/nothing").json()["detail"] == "there is no such address"
    answer = client.get("/api/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["detail"] == "this address does not take GET" and "Use POST" in answer.json()["hint"]
    refused = client.get("/api/v1/labels", params={"by": "name", "limit": "many"}).json()["detail"]
    assert refused == "by must be 'prefix' or 'meaning'; limit must be an integer"


@pytest.mark.parametrize("path", ["/", "/api/v1/health/ready", "/api/v1/models", "/metrics", "/openapi.json"])
def test_head_has_the_headers_of_get_and_no_body(client: Client, path: str) -> None:
    head, get = client.run(client.http.head(path)), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert client.run(client.http.head("/api/v1/predict")).status_code == 405


def test_errors_have_the_texts_of_the_library(client: Client, tagger: Tagger) -> None:
    with pytest.raises(longtail.LongtailError) as expected:
        tagger.predict(["a"], target="precision=0.999")
    problem = client.post("/api/v1/predict", {"texts": ["a"], "target": "precision=0.999"}).json()
    assert f"{problem['detail']}. {problem['hint']}" == str(expected.value)


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("se", [("sea", "sea")]),
        ("FRU", [("fruit", "fruit")]),
        ("nuts", [("fruit", "fruits and nuts")]),  # a word inside of a synonym
        ("ocean", [("sea", "Océan")]),  # without the accent
        ("melo", [("music", "Melodies")]),
        ("551", [("sea", "551")]),
        ("uit", []),
        ("+", []),  # not the same as nothing
        ("m", [("metal", "metal"), ("music", "music")]),
    ],
)
def test_search_by_prefix_and_synonym(client: Client, query: str, matches: list[tuple[str, str]]) -> None:
    found = client.get("/api/v1/labels", params={"q": query}).json()["labels"]
    assert sorted((one["label"], one["matched"]) for one in found) == sorted(matches)


def test_frequent_labels_come_first_and_an_exact_match_before_them(client: Client) -> None:
    found = client.get("/api/v1/labels").json()["labels"]
    counts = [one["n_samples"] for one in found]
    assert counts == sorted(counts, reverse=True) and len(found) == 6
    assert client.get("/api/v1/labels", params={"q": "art"}).json()["labels"][0]["label"] == "art"
    assert len(client.get("/api/v1/labels", params={"limit": 2}).json()["labels"]) == 2


def test_search_by_meaning_finds_what_the_model_gives_to_the_words(client: Client) -> None:
    found = client.get("/api/v1/labels", params={"q": "a song of the choir", "by": "meaning", "limit": 1}).json()["labels"]
    assert [one["label"] for one in found] == ["music"]


def test_the_tree_level_by_level(client: Client) -> None:
    roots = client.get("/api/v1/labels/tree").json()
    assert [(one["label"], one["n_children"]) for one in roots["labels"]] == [("art", 1), ("things", 3)]
    below = client.get("/api/v1/labels/tree", params={"parent": "http://x/things", "offset": 1, "limit": 1}).json()
    assert [one["label"] for one in below["labels"]] == ["metal"] and below["total"] == 3
    assert client.get("/api/v1/labels/tree", params={"parent": "nothing"}).status_code == 404


def test_the_card_of_a_model(client: Client, tagger: Tagger) -> None:
    listed = client.get("/api/v1/models").json()
    assert listed["default"] == "topics" and [one["name"] for one in listed["models"]] == ["topics"]
    card = client.get("/api/v1/models/topics").json()
    assert card.items() >= listed["models"][0].items()
    assert (card["method"], card["n_labels"], card["n_samples"]) == ("ovr", 6, tagger.pipeline.n_samples)
    assert (card["score"], card["reads"], card["has_parents"]) == ("probability", "texts", True)
    assert card["largest"][0]["n_samples"] == max(tagger.pipeline.label_counts)
    assert list(card["figures"]) == ["P@1", "P@3", "P@5", "precision", "recall", "labels per text"]
    assert all(0 < value <= 100 for value in card["figures"].values())
    assert card["held_out"] == tagger.decisions.source
    bins = card["calibration"]["bins"]
    assert all(0 <= one["score"] <= 1 and 0 <= one["right"] <= 1 and one["n"] >= 1 for one in bins)
    held_out = tagger.decisions.set_rules.curve.n_labels[0]
    assert sum(one["n"] for one in bins) == pytest.approx(held_out, rel=0.02)
    assert client.get("/api/v1/models/other").status_code == 404


def test_a_model_of_vectors_is_listed_but_reads_no_texts(
    make_client: Callable[..., Client], vectors: longtail.Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Tagger("ovr", threads=1).fit(vectors, progress=False).save(tmp_path / "vectors")
    client = make_client({"vectors": tmp_path / "vectors"})
    assert "cannot predict" in caplog.text  # before anybody tries
    assert client.get("/api/v1/models").json()["models"][0]["reads"] == "vectors"
    answer = client.post("/api/v1/predict", {"texts": ["a"]})
    assert answer.status_code == 400 and "reads feature vectors" in answer.json()["detail"]


def test_feedback_is_what_update_learns_from(client: Client, folder: Path, tmp_path: Path) -> None:
    event = {
        "model": "topics",
        "text": "pizza oven",
        "consent": True,
        "shown": ["sea"],
        "rejected": ["sea"],
        "added": ["food"],
    }
    answer = client.post("/api/v1/feedback", event)
    assert answer.status_code == 201
    kept = {"model": "topics", "text": "secret words", "consent": False, "accepted": ["sea"]}
    assert client.post("/api/v1/feedback", kept).status_code == 201
    path = tmp_path / "feedback" / "topics.jsonl"
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["id"] == answer.json()["id"] and first["text"] == "pizza oven" and first["added"] == ["food"]
    assert second["text"] is None and "secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0  # texts of people are not for everybody
    report = longtail.load(folder).update(feedback=path)
    assert (report.n_feedback, report.new_labels) == (1, ("food",))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"accepted": []}, "no label was accepted"),
        ({"rejected": ["sea"]}, 'the label "sea" is rejected, but also'),
        ({"rejected": ["unknown"]}, 'there is no label "unknown"'),
        ({"accepted": ["sea", " "]}, '"accepted" has a label without a name'),  # `update` would refuse the whole file
    ],
)
def test_feedback_that_says_nothing_or_contradicts_itself(
    client: Client, change: dict[str, object], found: str, tmp_path: Path
) -> None:
    event = {"model": "topics", "text": "a", "consent": True, "accepted": ["sea"], **change}
    answer = client.post("/api/v1/feedback", event)
    assert answer.status_code == 400 and found in answer.json()["detail"]
    assert not (tmp_path / "feedback").exists()


def test_feedback_is_whole_lines(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"model": "topics", "consent": False, "accepted": ["sea"]}
    assert client.post("/api/v1/feedback", event).status_code == 201
    path = tmp_path / "feedback" / "topics.jsonl"
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert client.post("/api/v1/feedback", event).status_code == 503
    assert path.read_bytes() == before  # nothing of the event that was refused
    assert 'longtail_feedback_total{verdict="accepted"} 1.0' in client.get("/metrics").text
    path.write_bytes(before + b'{"id": "cut o')
    assert client.post("/api/v1/feedback", event).status_code == 201
    assert [line.endswith(b"}") for line in path.read_bytes().splitlines()] == [True, False, True]


def test_feedback_that_cannot_be_written(make_client: Callable[..., Client], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = make_client(feedback=str(tmp_path / "file" / "folder"))
    event = {"model": "topics", "consent": False, "accepted": ["sea"]}
    assert client.post("/api/v1/feedback", event).status_code == 503


def test_health_and_metrics(client: Client) -> None:
    assert client.get("/api/v1/health/live").json() == client.get("/api/v1/health/ready").json() == {"status": "ok"}
    client.post("/api/v1/predict", {"texts": ["ship", "qq"]})
    client.get("/no/such/address")
    text = client.get("/metrics").text
    assert 'longtail_requests_total{code="200",route="/api/v1/predict"} 1.0' in text
    assert 'route="none"' in text and "/no/such/address" not in text
    assert 'longtail_batch_size_sum{model="topics"} 2.0' in text
    assert 'longtail_unknown_texts_total{model="topics"} 1.0' in text
    assert "longtail_queue_depth 0.0" in text


def test_every_route_is_described(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    ours = {"predict", "labels", "labels/tree", "models", "models/{name}", "feedback", "health/live", "health/ready"}
    assert {f"/api/v1/{one}" for one in ours} <= set(paths)
    operation = paths["/api/v1/predict"]["post"]
    assert "application/problem+json" in operation["responses"]["422"]["content"]


def test_addresses_and_methods_that_do_not_exist(client: Client) -> None:
    missing = client.get("/api/v1/nothing")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    wrong = client.get("/api/v1/predict")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_the_page_has_a_strict_policy(client: Client) -> None:
    answer = client.get("/")
    if answer.status_code == 404:
        pytest.skip("the page is not part of this checkout")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert client.get("/", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    for outside in ("../api.py", "..%2Fapi.py", "%2e%2e/api.py", "/etc/passwd"):
        assert client.get(f"/page/{outside}").status_code == 404


def test_a_request_may_name_few_patterns(client: Client) -> None:
    body = {"texts": ["ship"], "allow": ["s?a"] * 10 + ["sea", "http://x/fruit", "551"]}
    assert client.post("/api/v1/predict", body).status_code == 200
    refused = client.post("/api/v1/predict", {"texts": ["ship"], "deny": ["s?a"] * 11})
    assert refused.status_code == 400 and "11 words are not labels" in refused.json()["detail"]


def test_no_request_waits_for_the_index_of_labels(client: Client) -> None:
    model = client.app.state.service.models.get("topics")
    assert "index" in vars(model.catalogue) and {"ids", "keys", "hierarchy"} <= vars(model.tagger.labels).keys()
