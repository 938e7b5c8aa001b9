"""Requests whose values have the wrong type, or are outside of their limits, as errors of the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longtail.service.errors import ServiceError

_MAX_FOUND = 5  # errors that are named
_MAX_PLACE = 100  # characters of the name of a field, which a client may have chosen
_SEE = "See /openapi.json"
_TYPES = {
    "missing": "is missing",
    "string_type": "must be a string",
    "string_unicode": "has half of a character (a lone surrogate)",
    "list_type": "must be a list",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing": "must be an integer",
    "int_parsing_size": "must be an integer of fewer digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} element",
    "too_long": "must have at most {max_length:,} elements",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length:,} characters",
    "literal_error": "must be {expected}",
}


def describe_invalid(errors: Sequence[Mapping[str, Any]], status: int, content_type: str) -> ServiceError:
    """Return the error for values that pydantic has refused. It names them, but never repeats what they contain.

    :param errors: What pydantic says.
    :param status: The status code of the answer.
    :param content_type: What the client says that it has sent.
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        reason = f"{first['ctx']['error']}, at character {first['loc'][-1]}"
        return ServiceError(status, f"the request is not JSON ({reason})", hint=_SEE)
    if first["loc"] == ("body",) and first["type"] != "missing" and not _is_json(content_type):
        hint = "Send the header Content-Type: application/json"
        return ServiceError(status, "the request does not say that it is JSON", hint=hint)
    hints = [one["ctx"]["hint"] for one in errors if "hint" in one.get("ctx", {})]
    return ServiceError(status, "; ".join(map(_describe, errors[:_MAX_FOUND])), hint=hints[0] if hints else _SEE)


def _describe(error: Mapping[str, Any]) -> str:
    place = ".".join(map(str, error["loc"][1:]))[:_MAX_PLACE] or "the request"
    known = _TYPES.get(error["type"])
    if known is None:
        return str(error["msg"]) if error["type"] == "unknown" else f"{place}: {error['msg']}"
    return f"{place} {known.format(**error.get('ctx', {}))}"


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
