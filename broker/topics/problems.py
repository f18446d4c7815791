"""What goes wrong, as `application/problem+json` (RFC 9457).

Beside its own members there is `code`, a word that programs can go by. Refusals of the stream
service keep their names (broker.protocol.stream_wire.Status), in lower case.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from broker.http.messages import HttpError, Response
from broker.protocol.stream_wire import Refused, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol.errors import AMQPError

DETAIL_CHARS_MAX: Final = 1000  # a detail quotes what was sent, which may be long
UNAVAILABLE: Final = 503

_AMQP: Final = {
    403: (403, "access_refused"),
    404: (404, "not_found"),
    405: (409, "conflict"),
    406: (409, "conflict"),
    506: (503, "unavailable"),
}
_CODES: Final = {400: "bad_request", 401: "login_failed", 404: "not_found", 503: "unavailable"}
_STATUSES: Final = {
    Status.ACCESS_REFUSED: 403,
    Status.VHOST_REFUSED: 404,
    Status.STREAM_NOT_FOUND: 404,
    Status.PARTITION_NOT_FOUND: 404,
    Status.GROUP_NOT_FOUND: 404,
    Status.UNKNOWN_MEMBER: 409,
    Status.MEMBER_FENCED: 409,
    Status.STALE_GENERATION: 409,
    Status.NOT_ASSIGNED: 409,
    Status.GROUP_NOT_EMPTY: 409,
    Status.GROUP_FULL: 429,
    Status.OFFSET_UNSTABLE: 503,
    Status.SHUTTING_DOWN: 503,
    Status.STREAM_DAMAGED: 503,
    Status.UNAVAILABLE: 503,
    Status.INTERNAL_ERROR: 500,
}


class TopicError(HttpError):
    """An error of the topics API; raised by its routes."""

    def __init__(
        self, status: int, detail: str, *, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail[:DETAIL_CHARS_MAX], headers=headers)
        self.code = code

    def as_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.reason,
            "code": self.code,
        }

    def response(self) -> Response:
        return Response(
            status=self.status,
            headers={"Content-Type": "application/problem+json", **self.headers},
            body=json.dumps(self.as_json()).encode() + b"\n",
        )


def bad_request(detail: str) -> TopicError:
    return TopicError(400, detail, code="bad_request")


def no_topic(name: str) -> TopicError:
    return TopicError(404, f"there is no topic {name!r}", code="stream_not_found")


def from_refusal(refused: Refused) -> TopicError:
    status = Status(refused.status)
    return TopicError(_STATUSES.get(status, 400), refused.text, code=status.name.lower())


def from_amqp(error: AMQPError) -> TopicError:
    status, code = _AMQP.get(error.code, (400, "bad_request"))
    return TopicError(status, error.text, code=code)


def from_http(error: HttpError) -> TopicError:
    """Other parts of the API answer 401, as RabbitMQ does, for what is only not allowed."""
    if isinstance(error, TopicError):
        return error
    if error.error == "not_authorised":
        return TopicError(403, error.reason, code="access_refused")
    code = _CODES.get(error.status, "error")
    return TopicError(error.status, error.reason, code=code, headers=error.headers)
