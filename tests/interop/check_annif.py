"""Check the service with the real Annif: its ``http`` backend, annif-client, and its own description of its interface.

``make interop`` makes the environment with these programs and runs this script. All requests stay on this machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

import longtail
from longtail.data.annif import make_uri

N_TEXTS, N_EVALUATED = 2000, 100
PROJECT = """
[longtail-en]
name=longtail
language=en
backend=http
vocab=pydoc
endpoint=http://127.0.0.1:{port}/v1/projects/pydoc/suggest
"""
CLIENT = """
import sys
from annif_client import AnnifClient
client = AnnifClient(api_base=sys.argv[1])
assert [project["project_id"] for project in client.projects] == ["pydoc"]
assert client.get_project("pydoc")["is_trained"]
found = client.suggest(project_id="pydoc", text="Return the maximum along an axis.", limit=3)
assert len(found) == 3 and all(0 < one["score"] <= 1 and one["uri"] for one in found), found
batch = client.suggest_batch(project_id="pydoc", documents=[{"text": "a", "document_id": "1"}, {"text": "Sort a list."}])
assert [one["document_id"] for one in batch] == ["1", None], batch
client.learn(project_id="pydoc", documents=[{"text": "Sort a list.", "subjects": [{"uri": found[0]["uri"]}]}])
shares = client.detect_language(text="The cat is on the table", languages=["en", "fi"])
assert shares["results"][0]["language"] == "en", shares
try:
    client.get_project("nothing")
except Exception as error:
    assert "not found" in str(error), error
else:
    raise AssertionError("an unknown project was found")
print("annif-client: projects, suggest, suggest-batch, learn, detect-language and errors work")
"""


def run(command: list[str], folder: Path) -> str:
    """Run a command; its output is shown and returned."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    out = done.stdout + done.stderr
    print(f"$ {' '.join(command)}\n{out[-3000:]}", flush=True)
    if done.returncode or "Traceback" in out:
        raise SystemExit(f"{command[0]} failed with {done.returncode}")
    return out


def make_model(folder: Path) -> longtail.Dataset:
    """Train a small model on the built-in corpus; returns texts that it has not seen."""
    train, test = longtail.split("builtin:pydoc", test=0.2)
    train = train.take(np.random.default_rng(0).permutation(train.n_samples)[:N_TEXTS])
    longtail.Tagger("ovr", min_df=2, ngrams=1, subwords=0.0, train_on_names=False).fit(train).save(folder / "pydoc")
    return test.take(np.random.default_rng(0).permutation(test.n_samples)[:N_EVALUATED])


def write_corpus(test: longtail.Dataset, path: Path) -> float:
    """Write texts with the URIs of their labels, as Annif reads them. Returns the share of first labels that are right."""
    tagger, hits = longtail.load(path.parent / "pydoc"), []
    with path.open("w", newline="") as stream:
        table = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row, text in enumerate(test.texts or ()):
            names = [test.labels.names[i] for i in test.Y[[row]].indices]
            uris = [f"<{make_uri(tagger.labels, tagger.labels.ids[name])}>" for name in names if name in tagger.labels.ids]
            if uris:
                clean = " ".join(re.findall(r"\w+", text))  # nothing that files of tabs would need to escape
                table.writerow([clean, " ".join(uris)])
                hits.append(tagger.predict([clean], k=1)[0][0].label in names)
    return sum(hits) / len(hits)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the service answers."""
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("the service has ended")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health/ready", timeout=5)
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the service did not start")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="virtual environment with annif, annif-client and schemathesis")
    programs = parser.parse_args().environment.resolve() / "bin"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        expected = write_corpus(make_model(folder), folder / "corpus.tsv")
        longtail_command = [sys.executable, "-m", "longtail"]
        run([*longtail_command, "labels", "pydoc", "export", "--format", "annif", "--out", "vocab.csv"], folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "projects.cfg").write_text(PROJECT.format(port=port))
        with (folder / "serve.log").open("wb") as log:
            server = subprocess.Popen([*longtail_command, "serve", "pydoc", "--port", str(port)], cwd=folder, stderr=log)
            try:
                wait_for(port, server)
                check(programs, folder, f"http://127.0.0.1:{port}/v1", expected)
            finally:
                server.terminate()
                server.wait(60)
        text = (folder / "serve.log").read_text()
        codes = re.findall(r" (5\d\d) [\d.]+ ms", text)
        print(f"service: {len(re.findall(' ms ', text))} requests, {len(codes)} server errors")
        if codes:
            raise SystemExit(text[-3000:])


def check(programs: Path, folder: Path, address: str, expected: float) -> None:
    """Run Annif, its client, and schemathesis over its description.

    :param expected: The precision at 1 that Annif must measure: that of the model itself.
    """
    annif = str(programs / "annif")
    run([annif, "load-vocab", "pydoc", "vocab.csv"], folder)
    run([annif, "list-projects"], folder)
    text = "Draw random samples from a normal distribution."
    (folder / "text.txt").write_text(text)
    output = run([annif, "suggest", "longtail-en", "text.txt"], folder)
    suggested = [(label, float(score)) for label, score in re.findall(r"^<.*>\t(\S+)\t([\d.]+)", output, re.MULTILINE)]
    tags = longtail.load(folder / "pydoc").predict([text], k=10)[0]
    # Annif orders labels of equal probability in another way.
    assert sorted(suggested) == sorted((tag.label, round(tag.score, 4)) for tag in tags), suggested
    results = run([annif, "eval", "--metric", "Precision@1", "--metric", "NDCG", "longtail-en", "corpus.tsv"], folder)
    precision = re.search(r"Precision@1:\s+([\d.]+)", results)
    assert precision and abs(float(precision[1]) - expected) < 0.03, (results, expected)
    run([str(programs / "python"), "-c", CLIENT, address + "/"], folder)
    feedback = [json.loads(line) for line in (folder / "feedback" / "pydoc.jsonl").read_text().splitlines()]
    assert feedback[0]["text"] == "Sort a list." and feedback[0]["accepted"], feedback
    find = "import annif, pathlib; print(pathlib.Path(annif.__file__).parent / 'openapi' / 'annif.yaml')"
    schema = run([str(programs / "python"), "-c", find], folder).split()[-1]
    # Languages that nobody knows fit the description, but are refused, as Annif does; null and values that are not used are
    # taken, although they do not fit it. Of the errors of "learn", the description names none, but Annif answers some.
    options = ["--url", address, "--max-examples", "20", "--workers", "1", "--generation-deterministic"]
    excluded = "positive_data_acceptance,negative_data_rejection"
    for paths, more in (("--exclude-path-regex", ""), ("--include-path-regex", ",status_code_conformance")):
        command = [str(programs / "schemathesis"), "run", schema, *options, "--exclude-checks", excluded + more]
        run([*command, paths, "learn"], folder)


if __name__ == "__main__":
    main()
