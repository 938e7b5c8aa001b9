"""schemathesis: requests made from our own description, valid and not, get only answers that it describes."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode, openapi
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from service.conftest import Client

EXAMPLES = 2  # of each operation and mode
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_answers_are_as_described(client: Client) -> None:
    schema, codes = openapi.from_dict(client.app.openapi()), []

    def check(case: Case) -> None:
        request = case.as_transport_kwargs(base_url="http://localhost")
        request.pop("cookies", None)
        if isinstance(request.get("data"), bytes | str):
            request["content"] = request.pop("data")
        answer = client.run(client.http.request(**request))
        codes.append(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:

            @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def try_cases(case: Case) -> None:
                check(case)

            with suppress(Unsatisfiable):  # an operation without parameters takes no wrong values
                try_cases()
    assert len(codes) > 50 and {*codes} >= {200, 400, 404, 422}
