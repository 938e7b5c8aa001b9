"""Access tokens and their scopes."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from pathlib import Path

from longtail.errors import SettingError, suggest

SCOPES = ("predict", "learn", "admin")
_MIN_LENGTH = 16  # characters; shorter tokens can be guessed
_EXAMPLE = "Write scopes and a token per line, for example: predict,learn 3f6c0a…, from `openssl rand -hex 32`"


def read_tokens(path: str | Path) -> dict[str, frozenset[str]]:
    """Read a file with one token per line, after its scopes. Returns the scopes by token.

    :param path: The file. Empty lines, and lines that start with ``#``, are left out.
    """
    tokens: dict[str, frozenset[str]] = {}
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise SettingError(f"the tokens cannot be read ({error.strerror})", where=str(path), hint=_EXAMPLE) from error
    except UnicodeDecodeError as error:
        raise SettingError("this is not a text file in UTF-8", where=str(path), hint=_EXAMPLE) from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where, words = f"{path}:{number}", line.split()
        if len(words) != 2:
            raise SettingError("this is not a list of scopes and a token", where=where, hint=_EXAMPLE)
        scopes = frozenset(words[0].split(","))
        if unknown := scopes - set(SCOPES):
            raise SettingError(f'there is no scope "{min(unknown)}"', where=where, hint=suggest(min(unknown), SCOPES))
        if len(words[1]) < _MIN_LENGTH or not words[1].isascii():
            raise SettingError(f"the token has fewer than {_MIN_LENGTH} ASCII characters", where=where, hint=_EXAMPLE)
        tokens[words[1]] = tokens.get(words[1], frozenset()) | scopes
    if not tokens:
        raise SettingError("there is no token", where=str(path), hint=_EXAMPLE)
    return tokens


def find_scopes(tokens: Mapping[str, frozenset[str]], authorization: str) -> frozenset[str] | None:
    """Return the scopes of the token in an ``Authorization`` header; None if there is no known token.

    Every token is compared, in constant time, so that the time says nothing about them.

    :param tokens: The scopes by token.
    :param authorization: ``Bearer TOKEN``, or ``Basic …`` with the token as password, for clients that send nothing else.

    >>> find_scopes({"0123456789abcdef": frozenset(["predict"])}, "Bearer 0123456789abcdef")
    frozenset({'predict'})
    """
    given, found = _extract_token(authorization).encode("utf-8", "replace"), None
    for token, scopes in tokens.items():
        if hmac.compare_digest(given, token.encode()):
            found = scopes
    return found


def _extract_token(authorization: str) -> str:
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""
