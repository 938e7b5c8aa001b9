"""Settings of the service: from a TOML file, environment variables and options, in this order."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.errors import SettingError, suggest
from longtail.settings import Settings, describe, parse_value, setting, settings

ENVIRONMENT = "LONGTAIL_SERVE_"  # LONGTAIL_SERVE_PORT=8080
_MODELS = "models"  # the table of a TOML file with the folders of the models
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


@settings
class ServiceSettings(Settings):
    """Settings of ``longtail serve``."""

    host: str = setting("Address to listen on.", default="127.0.0.1")
    port: int = setting("Port to listen on. 0: any free port.", default=8000, minimum=0, maximum=65_535)
    token_file: str | None = setting(
        "File with access tokens, one per line: scopes, separated by commas (predict, learn, admin), and the token."
        " None: everybody who reaches the port may do everything.",
        default=None,
    )
    insecure: bool = setting("Whether to listen beyond this machine without access tokens.", default=False)
    feedback: str = setting("Folder for feedback, one JSONL file per model.", default="feedback")
    threads: int | None = setting("Threads that compute predictions. None: all free cores.", default=None, positive=True)
    max_texts: int = setting("Texts per request.", default=1000, positive=True)
    max_batch: int = setting("Texts that are predicted together.", default=256, positive=True)
    max_waiting: int = setting(
        "Texts that wait for their prediction; above that, requests are refused.", default=4000, positive=True
    )
    max_body: float = setting("Megabytes per request.", default=16.0, positive=True)
    max_open: float = setting(
        "Megabytes of all requests that are being answered; above that, they are refused.",
        default=256.0,
        positive=True,
    )
    deadline: float = setting("Seconds after which a request that is not answered fails.", default=30.0, positive=True)
    patience: float = setting(
        "Seconds that a client may take to send a request, or may stop reading the answer.", default=20.0, positive=True
    )
    watch: float = setting(
        "Seconds between checks whether the files of a model have changed; it is loaded one check later. 0: no checks.",
        default=2.0,
        minimum=0,
    )
    cors: str | None = setting("Origins of other web pages that may send requests, separated by commas.", default=None)
    hosts: str | None = setting(
        "Names by which clients may call a service without tokens, separated by commas, besides those of this machine.",
        default=None,
    )
    language: str = setting("Language code that projects of the Annif interface have, if the model has none.", default="en")
    reuse_port: bool = setting("Whether several processes may listen on the same port.", default=False)

    def check(self) -> None:
        """Check every setting, and that nobody outside of this machine gets access by mistake."""
        super().check()
        if self.max_waiting < self.max_texts:
            found = f"max_waiting is {self.max_waiting}, less than max_texts, which is {self.max_texts}"
            raise SettingError(found, hint="A request with the largest number of texts must fit into the queue")
        if self.max_open < self.max_body:
            found = f"max_open is {self.max_open:g}, less than max_body, which is {self.max_body:g}"
            raise SettingError(found, hint="The largest request must be within the limit of all of them")
        if not self.is_local and self.token_file is None and not self.insecure:
            hint = "Give --token-file, or --insecure if everybody who reaches this address may use the service"
            raise SettingError(
                f"the address {self.host} can be reached from other machines, and there is no token", hint=hint
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def split_list(words: str | None) -> tuple[str, ...]:
    """Split a setting with several values.

    >>> split_list("a.org, b.org"), split_list(None)
    (('a.org', 'b.org'), ())
    """
    return tuple(word.strip() for word in (words or "").split(",") if word.strip())


def read_settings(
    config: str | Path | None, environment: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[ServiceSettings, dict[str, Path]]:
    """Collect and check the settings. Returns them, and the folders of the models that the file names.

    :param config: A TOML file, or None.
    :param environment: Environment variables, ``LONGTAIL_SERVE_PORT`` and so on; they come before the file.
    :param given: Settings that come before both; those that are None are left out.
    """
    kinds = {each.name: each.type for each in describe(ServiceSettings)}
    values: dict[str, Any] = {} if config is None else _read_toml(Path(config))
    models = values.pop(_MODELS, {})
    for name, word in environment.items():
        if name.startswith(ENVIRONMENT):
            key = name.removeprefix(ENVIRONMENT).lower()
            _check_name(key, kinds, name)
            values[key] = parse_value(name, word, kinds[key])
    values |= {name: value for name, value in given.items() if value is not None}
    for name in values:
        _check_name(name, kinds, str(config or ""))
    found = ServiceSettings(**values)
    found.check()
    return found, {name: Path(folder) for name, folder in models.items()}


def name_models(words: Sequence[str | Path], known: Mapping[str, Path]) -> dict[str, Path]:
    """Return the folders of models by name: those of a file, and ``FOLDER`` or ``NAME=FOLDER`` each.

    >>> name_models(["models/plt", "en=models/ovr"], {})
    {'plt': PosixPath('models/plt'), 'en': PosixPath('models/ovr')}
    """
    models = dict(known)
    for word in map(str, words):
        name, equals, folder = word.partition("=")
        if not equals or Path(word).exists():
            name, folder = Path(word).resolve().name, word
        if name in models:
            raise SettingError(f'two models have the name "{name}"', hint=f"Name one of them: NAME={folder}")
        models[name] = Path(folder)
    for name, path in models.items():
        if not _NAME.fullmatch(name):
            hint = f"Name it with letters, digits, dots, hyphens and underscores: NAME={path}"
            raise SettingError(f'"{name}" cannot be the name of a model in addresses', hint=hint)
    if not models:
        raise SettingError("there is no model to serve", hint="Give the folder of a model, or a file with [models]")
    return models


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingError(f"the file cannot be read ({error.strerror})", where=str(path), hint="Check the name") from error
    except ValueError as error:
        raise SettingError(f"this is not TOML ({error})", where=str(path), hint="Write lines such as port = 8080") from error
    models = values.get(_MODELS, {})
    if not isinstance(models, dict) or not all(isinstance(folder, str) for folder in models.values()):
        raise SettingError(
            "[models] has no folders", where=str(path), hint='Write lines such as plt = "models/plt" below it'
        )
    return values


def _check_name(name: str, known: Mapping[str, str], where: str) -> None:
    if name not in known:
        raise SettingError(f'the service has no setting "{name}"', where=where, hint=suggest(name, known))
