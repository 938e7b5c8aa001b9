"""The interfaces of other programs: Annif, Label Studio, the Open Inference Protocol, servers of fastText models."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtail import Tagger, edit_labels, read_vocabulary
from longtail.cli.main import main
from longtail.errors import LongtailError
from longtail.service.errors import ServiceError
from longtail.service.forms import parse_form
from longtail.service.label_config import parse_label_config
from service.conftest import Client

SUGGEST = "/v1/projects/topics/suggest"
CHOICES = """<View><Text name="body" value="$content"/><Header value="Topics"/>
<Choices name="topic" toName="body" choice="multiple">
<Choice value="sea"/><Choice value="music"/><Choice value="x"/></Choices>
</View>"""
TAXONOMY = '<View><HyperText name="h" value="$text"/><Taxonomy name="tax" toName="h"/></View>'


def test_annif_describes_projects_and_vocabularies(client: Client) -> None:
    assert client.get("/v1/").json()["title"] == "Annif REST API"
    (project,) = client.get("/v1/projects").json()["projects"]
    assert project == client.get("/v1/projects/topics").json()
    assert project["is_trained"] is True and project["modification_time"].endswith("+00:00")
    assert project["vocab"] == {"vocab_id": "topics", "languages": ["en"], "size": 6, "loaded": True}
    assert client.get("/v1/vocabs").json() == {"vocabs": [project["vocab"]]}
    missing = client.get("/v1/projects/other")
    assert missing.status_code == 404 and missing.json()["detail"] == "Project 'other' not found"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"text=a+ship+%26+waves&limit=2&metadata_title=x&project=ok", "application/x-www-form-urlencoded"),
        (b"text=a ship & waves&limit=2&language=", "application/x-www-form-urlencoded"),  # not encoded, cut at the &
        (b"text=a+ship&limit=2&project_id=topics", "multipart/form-data"),  # a form by another name
        (b"text=a+ship&limit=2", ""),
        (b'{"text": "a ship", "limit": 2}', "application/json"),
        (
            b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\na ship\r\n--b\r\n'
            b'Content-Disposition: form-data; name="limit"\r\n\r\n2\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
        ),
    ],
)
def test_annif_takes_forms_of_many_clients(client: Client, content: bytes, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = client.run(client.http.post(SUGGEST, content=content, headers=headers))
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert len(results) == 2
    assert results[0] == {"uri": "urn:longtail:sea", "label": "sea", "notation": "551", "score": results[0]["score"]}
    assert 1 >= results[0]["score"] >= results[1]["score"] > 0
    assert (
        client.run(client.http.post("/v1/projects/topics/analyze", content=content, headers=headers)).json() == answer.json()
    )


def test_finto_ai_gets_what_its_page_asks_for(make_client: Callable[..., Client], folder: Path) -> None:
    """The requests of the page of Finto AI, in their order. It takes projects to be named VOCABULARY-LANGUAGE."""
    client = make_client({"topics-en": folder})
    (project,) = client.get("/v1/projects").json()["projects"]
    assert client.get("/v1/").json()["version"]
    text = "the ship is in the harbour: 100 % waves + wind"
    found = client.post("/v1/detect-language", {"text": text, "languages": ["fi", "sv", "en"]}).json()["results"]
    name = f"{project['project_id'].split('-')[0]}-{found[0]['language']}"
    for language in ("", "en"):
        body, headers = f"text={text}&limit=10&language={language}", {"content-type": "application/x-www-form-urlencoded"}
        answer = client.run(client.http.post(f"/v1/projects/{name}/suggest", content=body.encode(), headers=headers))
        best = answer.json()["results"][0]
        assert best["label"] == "sea" and best.keys() == {"uri", "label", "notation", "score"}


def test_a_form_part_may_have_no_name() -> None:
    assert parse_form(b"--b\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b") == {"": "x"}
    with_file = b'--b\r\nContent-Disposition: form-data; filename="name=1"; name="text"\r\n\r\na\r\nb\r\n--b--\r\n'
    assert parse_form(with_file, 'Multipart/Form-Data; charset=utf-8; boundary="b"') == {"text": "a\r\nb"}


@given(st.binary(max_size=60), st.text(st.sampled_from("ab=;*\"'\\%/ \t\xe9"), max_size=30))
@example(b"[" * 100_000, "application/json")
@example(b"a=1", "; n*")
@example(b"&" * 100_000, "")
@example(b"--b\r\n\r\n" * 50_000, "multipart/form-data; boundary=b")
def test_any_form_is_read_or_refused(body: bytes, kind: str) -> None:
    for prefix in ("", "multipart/form-data; boundary=", "application/json;"):
        with suppress(ServiceError):
            assert isinstance(parse_form(body, prefix + kind), dict)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "shift_jis", "idna", "nonsense"])
def test_a_configuration_may_declare_any_encoding(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><V><Text name="t" value="$é"/><Choices name="c" toName="t"/></V>'
    assert parse_label_config(text).field == "é"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, "no text"),
        ({"text": "a", "limit": "-1"}, "limit"),
        ({"text": "a", "limit": "1.5"}, "limit"),
        ({"text": "a", "limit": "many"}, "limit"),
        ({"text": "a", "threshold": "2"}, "threshold"),
        ({"text": "a", "threshold": "nan"}, "threshold"),
        ({"text": "a", "language": "fi"}, "not supported by vocabulary"),
    ],
)
def test_annif_refuses_wrong_values(client: Client, fields: dict[str, str], found: str) -> None:
    answer = client.run(client.http.post(SUGGEST, data=fields))
    assert answer.status_code == 400 and found in answer.json()["detail"]


def test_annif_limits_thresholds_and_blank_texts(client: Client) -> None:
    def suggest(**fields: str) -> list[Any]:
        return list(client.run(client.http.post(SUGGEST, data=fields)).json()["results"])

    assert len(suggest(text="ship")) == 4  # all labels that have training samples
    assert suggest(text="ship", limit="0") == suggest(text="  ") == []
    assert len(suggest(text="ship", limit="100000")) == 4
    assert [one["label"] for one in suggest(text="ship", threshold="0.5")] == ["sea"]


def test_annif_batches(client: Client) -> None:
    documents = [{"text": "ship", "document_id": "a"}, {"text": "iron ore", "metadata": {"title": "x"}}]
    answer = client.post("/v1/projects/topics/suggest-batch?limit=1&threshold=0.1", {"documents": documents}).json()
    assert [(one["document_id"], one["results"][0]["label"]) for one in answer] == [("a", "sea"), (None, "metal")]
    path = "/v1/projects/topics/suggest-batch"
    assert client.post(path, {"documents": []}).json() == []
    assert client.post(path, {"documents": [{"text": "a"}] * 33}).status_code == 400
    assert client.post(f"{path}?language=xx", {"documents": documents}).status_code == 400


def test_annif_learn_is_feedback(client: Client, tmp_path: Path) -> None:
    samples = [
        {"text": "big ship", "subjects": [{"uri": "urn:longtail:sea"}, {"uri": "http://x/music", "label": "music"}]},
        {"text": "unknown", "subjects": [{"uri": "http://x/unknown"}]},
    ]
    assert client.post("/v1/projects/topics/learn", samples).status_code == 204
    (line,) = (tmp_path / "feedback" / "topics.jsonl").read_text().splitlines()
    assert json.loads(line).items() >= {"text": "big ship", "accepted": ["music", "sea"], "source": "annif"}.items()
    assert client.post("/v1/projects/topics/learn", {"text": "a"}).status_code == 400


def test_annif_detects_languages(client: Client) -> None:
    def detect(text: str, *languages: str) -> Any:
        return client.post("/v1/detect-language", {"text": text, "languages": languages})

    best, *_ = detect("the cat is on the table", "fi", "en").json()["results"]
    assert best["language"] == "en" and best["score"] > 0.5
    assert detect("12345", "fi").json()["results"][0] == {"language": None, "score": 1.0}
    assert detect("a", "xx").status_code == detect("a").status_code == 400


def test_annif_gets_no_uri_outside_of_the_exported_vocabulary(
    make_client: Callable[..., Client], tagger: Tagger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagger.save(tmp_path / "model")
    edit_labels(tmp_path / "model").retire(["metal"])
    assert main(["labels", str(tmp_path / "model"), "export", "--format", "annif", "--out", str(tmp_path / "v.csv")]) == 0
    exported = {row["uri"]: row["label_en"] for row in csv.DictReader(io.StringIO((tmp_path / "v.csv").read_text()))}
    assert "http://x/metal" not in exported and exported["urn:longtail:sea"] == "sea" and len(exported) == 5
    assert set(read_vocabulary(tmp_path / "v.csv").labels.uris or ()) == set(exported)  # our own reader reads it, too
    client = make_client({"topics": tmp_path / "model"})
    results = client.run(client.http.post(SUGGEST, data={"text": "iron ship", "limit": "100"})).json()["results"]
    assert {one["uri"]: one["label"] for one in results}.items() <= exported.items()
    assert main(["labels", str(tmp_path / "model"), "export", "--format", "annif", "--language", "fi"]) == 0
    assert capsys.readouterr().out.startswith("uri,notation,label_fi\n")


def test_label_studio_connects(client: Client) -> None:
    assert client.get("/label-studio/topics/health").json() == {"status": "UP", "model_class": "longtail"}
    version = client.post("/label-studio/topics/setup", {"project": "7.1", "schema": CHOICES, "access_token": "x"}).json()
    assert version["model_version"].startswith("topics@")
    assert client.get("/label-studio/topics/versions").json() == {"versions": [version["model_version"]]}
    assert client.get("/label-studio/other/health").status_code == 404


def test_label_studio_gets_choices_of_its_configuration(client: Client) -> None:
    data = [{"content": "a ship and a violin"}, {"content": "iron ore"}, {}]
    tasks = [{"id": number, "data": one} for number, one in enumerate(data)]
    body = {"tasks": tasks, "project": "7.1", "label_config": CHOICES, "params": {"context": None}}
    both, other, empty = client.post("/label-studio/topics/predict", body).json()["results"]
    (region,) = both["result"]
    assert (region["from_name"], region["to_name"], region["type"]) == ("topic", "body", "choices")
    assert set(region["value"]["choices"]) == {"sea", "music"} and 0 < both["score"] <= 1
    assert set(other["result"][0]["value"]["choices"]) <= {"sea", "music"}  # metal is not one of the choices
    assert empty["result"] == [] and empty["model_version"] == both["model_version"]


def test_label_studio_gets_one_choice_or_a_path_or_nothing(client: Client) -> None:
    def predict(config: str, text: str) -> Any:
        body = {"tasks": [{"data": {"content": text, "text": text}}], "label_config": config}
        return client.post("/label-studio/topics/predict", body).json()["results"][0]["result"]

    single = CHOICES.replace('choice="multiple"', "")
    assert len(predict(single, "a ship and a violin")[0]["value"]["choices"]) == 1
    assert predict(TAXONOMY, "violin")[0]["value"] == {"taxonomy": [["art", "music"]]}
    nested = TAXONOMY.replace("/></View>", '><Choice value="All"><Choice value="music"/></Choice></Taxonomy></View>')
    assert predict(nested, "violin")[0]["value"] == {"taxonomy": [["All", "music"]]}
    assert predict(CHOICES.replace("sea", "x1").replace("music", "x2"), "ship") == []


def test_label_studio_annotations_are_feedback(client: Client, tmp_path: Path) -> None:
    event: dict[str, Any] = {
        "action": "ANNOTATION_CREATED",
        "project": {"id": 7, "label_config": CHOICES},
        "task": {"id": 1, "data": {"content": "a new ship"}},
        "annotation": {"result": [{"type": "choices", "value": {"choices": ["sea", "boats"]}}]},
    }
    assert client.post("/label-studio/topics/webhook", event).status_code == 201
    taxonomy = {"result": [{"value": {"taxonomy": [["art", "music"]]}}]}
    assert client.post("/label-studio/topics/webhook", {**event, "project": 7, "annotation": taxonomy}).status_code == 201
    for other in ("ANNOTATIONS_DELETED", "START_TRAINING", "PROJECT_UPDATED"):
        assert client.post("/label-studio/topics/webhook", {"action": other}).status_code == 201
    events = [json.loads(line) for line in (tmp_path / "feedback" / "topics.jsonl").read_text().splitlines()]
    assert [one["accepted"] for one in events] == [["boats", "sea"], ["music"]] and events[0]["text"] == "a new ship"


@pytest.mark.parametrize(
    ("result", "status", "names"),
    [
        ([{"type": "relation", "from_id": "a"}, {"value": {"choices": ["sea"]}}], 201, ["sea"]),
        ([{"value": {"choices": ["sea", " ", 3, ""], "taxonomy": [["art", "music"], [], "x"]}}], 201, ["music", "sea"]),
        ([{"value": {"choices": 5}}, {"value": {"text": ["a remark"]}}, 7], 201, None),
        ([], 201, None),
        (5, 400, None),
    ],
)
def test_annotations_with_other_parts(client: Client, tmp_path: Path, result: Any, status: int, names: list[str]) -> None:
    event = {"action": "ANNOTATION_CREATED", "task": {"data": {"text": "a ship"}}, "annotation": {"result": result}}
    assert client.post("/label-studio/topics/webhook", event).status_code == status
    path = tmp_path / "feedback" / "topics.jsonl"
    assert (json.loads(path.read_text())["accepted"] if path.exists() else None) == names


@pytest.mark.parametrize(
    "config",
    [
        "<View>",
        "",
        "<View><Choices name='c' toName='t'/></View>",
        "<View><Text name='t' value='$text'/></View>",
        "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><View>&b;</View>",
        "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><View/>",
        "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><View>&e;</View>",
        "<a>" * 100 + "</a>" * 100,
    ],
)
def test_label_configurations_that_are_refused(config: str) -> None:
    with pytest.raises(LongtailError):
        parse_label_config(config)


def test_open_inference_protocol(client: Client) -> None:
    assert client.get("/v2").json()["name"] == "longtail"
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    about = client.get("/v2/models/topics").json()
    (version,) = about["versions"]
    assert client.get(f"/v2/models/topics/versions/{version}/ready").json() == {"name": "topics", "ready": True}
    assert client.get("/v2/models/topics/versions/1").status_code == 404
    inputs = [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["ship", "a ship and a violin"]}]
    body = {"id": "7", "parameters": {"k": 2, "threshold": 0.5}, "inputs": inputs}
    answer = client.post(f"/v2/models/topics/versions/{version}/infer", body).json()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("topics", version, "7")
    labels, scores = answer["outputs"]
    assert labels["shape"] == scores["shape"] == [2, 2] and labels["data"][:2] == ["sea", ""]  # rows are padded
    assert set(labels["data"][2:]) == {"sea", "music"} and scores["data"][1] == 0
    only = client.post("/v2/models/topics/infer", {"inputs": inputs, "outputs": [{"name": "scores"}]}).json()
    assert [one["name"] for one in only["outputs"]] == ["scores"] and "id" not in only


@pytest.mark.parametrize(
    "change", [{"datatype": "FP32"}, {"shape": [3]}, {"data": [1, 2]}, {"shape": [0], "data": []}, {"data": None}]
)
def test_open_inference_protocol_errors(client: Client, change: dict[str, Any]) -> None:
    given = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "b"], **change}
    answer = client.post("/v2/models/topics/infer", {"inputs": [given]})
    assert answer.status_code == 400 and list(answer.json()) == ["error"]
    assert list(client.get("/v2/models/other").json()) == ["error"]


def test_open_inference_protocol_outputs_that_do_not_exist(client: Client) -> None:
    given = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["ship"]}
    answer = client.post("/v2/models/topics/infer", {"inputs": [given], "outputs": [{"name": "label"}]})
    assert (answer.status_code, answer.json()["error"].partition(".")[0]) == (400, 'there is no output "label"')


def test_all_errors_of_the_open_inference_protocol_have_its_form(make_client: Callable[..., Client]) -> None:
    client = make_client(max_body=0.001)
    large = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["ship " * 1000]}]}
    answers = [
        (client.get("/v2/nothing"), 404),
        (client.post("/v2", {}), 405),
        (client.post("/v2/models/topics/infer", large), 413),
        (client.post("/v2/models/topics/infer", {}, headers={"origin": "http://evil.example"}), 403),
        (client.post("/v2/models/topics/infer", {}), 400),
    ]
    for answer, status in answers:
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
        assert answer.headers["content-type"] == "application/json"


def test_lists_of_texts_as_for_fasttext(client: Client) -> None:
    answer = client.post("/predict?k=2&threshold=0.1", ["a ship and a violin", "iron"]).json()
    assert set(answer[0]["labels"]) == {"sea", "music"} and len(answer[0]["scores"]) == 2
    assert answer[1]["labels"][0] == "metal"
    assert client.post("/predict", []).status_code == 422
