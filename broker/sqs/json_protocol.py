"""AWS JSON 1.0: the action in the header X-Amz-Target, parameters and results as JSON objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from broker.http import json_body
from broker.http.messages import Response
from broker.sqs.errors import BAD_ACTION, BAD_REQUEST, NAMESPACE, SqsError

if TYPE_CHECKING:
    from broker.http.messages import Request

CONTENT_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = "x-amz-target"
_PREFIX: Final = "AmazonSQS."


def is_json_call(request: Request) -> bool:
    return TARGET in request.headers


def action_of(request: Request) -> str:
    target = request.headers[TARGET]
    if not target.startswith(_PREFIX):
        raise SqsError(BAD_ACTION, f"The target {target:.100} is not one of {_PREFIX}*.")
    return target.removeprefix(_PREFIX)


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object; no body at all is an empty one."""
    try:
        value = json_body.parse(body or b"{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SqsError(BAD_REQUEST, "The body is not a JSON object.")
    return value


def result(_action: str, value: dict[str, Any], request_id: str) -> Response:
    return Response(headers=_headers(request_id), body=json.dumps(value).encode())


def error(problem: SqsError, request_id: str) -> Response:
    """With the code of the query protocol in a header, for clients that were written for that."""
    kind = problem.kind
    fault = "Sender" if problem.is_senders_fault else "Receiver"
    return Response(
        status=kind.status,
        headers={**_headers(request_id), "x-amzn-query-error": f"{kind.code};{fault}"},
        body=json.dumps({"__type": NAMESPACE + kind.name, "message": problem.text}).encode(),
    )


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id}
