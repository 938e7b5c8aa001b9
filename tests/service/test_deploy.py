"""The systemd unit and the Dockerfile: their commands are run with the paths of this machine. No container is built here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from longtail.service.settings import ENVIRONMENT, read_settings
from service.processes import Process

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "longtail@.service").read_text()
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
TOKEN = "0123456789abcdef"


def get_entry(name: str) -> str:
    """The value of an entry of the unit."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def get_instructions(name: str) -> list[str]:
    """The arguments of all instructions of a kind in the Dockerfile."""
    return re.findall(rf"^{name}\s+(.*)$", DOCKERFILE, re.MULTILINE)


def find_environment() -> dict[str, str]:
    """The variables of the image."""
    return dict(pair.partition("=")[::2] for line in get_instructions("ENV") for pair in shlex.split(line))


def make_program(folder: Path) -> Path:
    """A program like the one that an installation makes."""
    program = folder / "longtail"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m longtail "$@"\n')
    program.chmod(0o755)
    return program


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / "longtail@1.service"
    copy.write_text(UNIT.replace("/opt/longtail/bin/longtail", str(make_program(tmp_path))))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if copy.name in line]) == (0, [])


def test_the_command_of_the_unit_starts_two_processes_that_load_models_again_and_stop(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"port = 0\n\n[models]\ntopics = {json.dumps(str(folder))}\n")
    program, *words = shlex.split(get_entry("ExecStart").replace("/etc/longtail/serve.toml", str(config)))
    assert program == "/opt/longtail/bin/longtail" and words[0] == "serve"
    name, _, cache = get_entry("Environment").partition("=")
    assert name == "NUMBA_CACHE_DIR" and cache == f"/var/cache/{get_entry('CacheDirectory')}"
    assert get_entry("WorkingDirectory") == f"/var/lib/{get_entry('StateDirectory')}"
    first = Process([sys.executable, "-m", "longtail", *words], tmp_path)
    config.write_text(config.read_text().replace("port = 0", f"port = {first.port}"))
    second = Process([sys.executable, "-m", "longtail", *words], tmp_path)
    assert first.port == second.port and get_entry("ExecReload") == "/bin/kill -HUP $MAINPID"
    for server in (first, second):
        os.kill(server.process.pid, signal.SIGHUP)
        answer = httpx.post(f"{server.address}api/v1/predict", json={"texts": ["ship"], "k": 1}, timeout=60)
        assert answer.json()["results"][0]["labels"][0]["label"] == "sea"
    first.stop(), second.stop(signal.SIGINT)


def test_the_image_copies_files_that_exist_and_has_known_settings(tmp_path: Path) -> None:
    for line in get_instructions("COPY"):
        *sources, _ = line.split()
        assert [source for source in sources if not (ROOT / source).exists()] == []
    settings, _ = read_settings(None, find_environment(), {})
    assert (settings.host, settings.feedback, settings.token_file) == ("0.0.0.0", "/feedback", "/tokens")
    assert get_instructions("EXPOSE") == [str(settings.port)]


def test_the_command_of_the_image_serves_and_is_healthy(folder: Path, tmp_path: Path) -> None:
    models, tokens = tmp_path / "models", tmp_path / "tokens"
    models.mkdir()
    (models / "topics").symlink_to(folder)
    tokens.write_text(f"predict {TOKEN}\n")
    places = {"LONGTAIL_SERVE_HOST": "127.0.0.1", "LONGTAIL_SERVE_PORT": "0", "LONGTAIL_SERVE_TOKEN_FILE": str(tokens)}
    places |= {
        "LONGTAIL_SERVE_FEEDBACK": str(tmp_path / "feedback"),
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", ""),
    }
    path = {"PATH": f"{make_program(tmp_path).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [word.replace("/models", str(models)) for word in json.loads(get_instructions("CMD")[0])]
    settings = {name: value for name, value in find_environment().items() if name.startswith(ENVIRONMENT)}
    server = Process(command, tmp_path, {**os.environ, **settings, **places, **path})
    (check,) = (shlex.split(line.partition("CMD ")[2]) for line in get_instructions("HEALTHCHECK"))
    assert check[0] == "python" and ":8000/" in check[-1]
    subprocess.run([sys.executable, *check[1:-1], check[-1].replace("8000", str(server.port))], check=True, timeout=60)
    url, body = f"{server.address}api/v1/predict", {"texts": ["ship"], "k": 1}
    answers = [
        httpx.post(url, json=body, headers=headers, timeout=60) for headers in ({}, {"authorization": f"Bearer {TOKEN}"})
    ]
    assert [answer.status_code for answer in answers] == [401, 200]
    server.stop()
