"""What goes wrong, with Confluent's codes: {"error_code": 40401, "message": "…"}."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from broker.http.messages import HttpError, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol.errors import AMQPError

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MESSAGE_CHARS_MAX: Final = 4000  # it may quote what was sent

INCOMPATIBLE: Final = 409
UNAVAILABLE: Final = 503
UNPROCESSABLE: Final = 422
_AMQP_REFUSED: Final = 406
_AMQP_NO_QUORUM: Final = 506


class RegistryError(HttpError):
    """Raised by routes. The status is the first three digits of the code."""

    def __init__(self, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(int(str(code)[:3]), message[:MESSAGE_CHARS_MAX], headers=headers)
        self.code = code

    def response(self) -> Response:
        body = {"error_code": self.code, "message": self.reason}
        return Response(
            status=self.status,
            headers={"Content-Type": CONTENT_TYPE, **self.headers},
            body=json.dumps(body).encode() + b"\n",
        )


def from_http(error: HttpError) -> RegistryError:
    if isinstance(error, RegistryError):
        return error
    return RegistryError(int(error.status), error.reason, error.headers)


def from_amqp(error: AMQPError) -> RegistryError:
    """Of the definitions, when a change could not be made."""
    if error.code == _AMQP_REFUSED:
        return RegistryError(42205, error.text)
    if error.code == _AMQP_NO_QUORUM:
        return timed_out(error.text)
    return RegistryError(50001, error.text)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> RegistryError:
    found = "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    return RegistryError(40403, found)


def subject_deleted(subject: str) -> RegistryError:
    text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40404, text)


def subject_not_deleted(subject: str) -> RegistryError:
    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(40405, text)


def version_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was soft deleted."
    return RegistryError(40406, f"{text}Set permanent=true to delete permanently")


def version_not_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was not deleted first"
    return RegistryError(40407, f"{text} before being permanently deleted")


def level_not_configured(subject: str) -> RegistryError:
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(40408, text)


def mode_not_configured(subject: str) -> RegistryError:
    text = f"Subject '{subject}' does not have subject-level mode configured"
    return RegistryError(40409, text)


def incompatible(subject: str, objections: list[str], level: str) -> RegistryError:
    details = "; ".join(objections)
    return RegistryError(
        INCOMPATIBLE,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"compatibility {level}, details: [{details}]",
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version:.100}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)


def referenced(subject: str, version: int, ids: list[int]) -> RegistryError:
    shown = ", ".join(map(str, ids[:10]))
    text = f"One or more references exist to the schema of subject '{subject}' version {version}"
    return RegistryError(42206, f"{text}: by schemas {shown}")


def invalid_subject(subject: str, reason: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject:.100}' is not valid: {reason}")


def denied(user: str, operation: str, what: str) -> RegistryError:
    return RegistryError(40301, f"User '{user}' is denied operation {operation} on {what}")


def timed_out(reason: str) -> RegistryError:
    return RegistryError(50002, f"Operation timed out: {reason}")
