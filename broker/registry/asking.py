"""A request to the registry: who asks, about which subject and version, and what they may do.

| to | needs |
|---|---|
| read a subject, its versions, schemas, level, mode; check a schema | a tag of the management |
| | API, or `read` or `write` on the subject's name |
| register a schema | `write` on the subject's name |
| delete a subject or version; set or delete its level or mode | `configure` on the subject's name |
| set or delete the level or mode of all | the tag `policymaker` or `administrator` |
| read the level and mode of all, types and contexts | a login |

Permissions are those in vhost "/", where a subject's name stands as a queue's would. A schema is
read by its id by whoever may read one of the subjects that have it. Lists leave out what the user
may not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.http import json_body
from broker.http.auth import MANAGERS, POLICYMAKERS
from broker.registry import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.http.admin import Call
    from broker.registry.state import Schemas
    from broker.security.permissions import Action

VHOST: Final = "/"
SUBJECT_BYTES_MAX: Final = 255  # as of all names that permissions are for
NUMBER_MAX: Final = 2**31 - 1
LATEST: Final = "latest"
BODY_BYTES_MAX: Final = 4 * 1024 * 1024  # a schema as a text within JSON, every character escaped

_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})
_OPERATIONS: Final = {"read": "Read", "write": "Write", "configure": "Delete or Configure"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    call: Call
    schemas: Schemas

    # What the request says

    def flag(self, *names: str) -> bool:
        """In any spelling: Python's clients write `True`."""
        query = self.call.request.query
        return any(query.get(name, [""])[-1].lower() == "true" for name in names)

    def text(self, name: str, default: str = "") -> str:
        return self.call.request.query.get(name, [default])[-1]

    def page(self, found: Sequence[T]) -> list[T]:
        """By `offset` and `limit`; a negative limit is none."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        start = max(offset, 0)
        return list(found[start:] if limit < 0 else found[start : start + limit])

    def _number(self, name: str, default: int) -> int:
        text = self.text(name) or str(default)
        try:
            return int(text)
        except ValueError:
            raise errors.RegistryError(400, f"{name} is no number: {text:.100}") from None

    @property
    def subject(self) -> str:
        return checked_subject(self.call.parameter("subject"))

    def version(self, *, deleted: bool = False) -> int:
        """That the path names, of the subject that it names. Raises RegistryError."""
        subject, text = self.subject, self.call.parameter("version")
        wanted = parse_version(text)
        there = self.schemas.versions(subject, deleted=deleted)
        if not there:
            raise errors.subject_not_found(subject)
        if wanted is None:
            return there[-1]
        if wanted not in there:
            raise errors.version_not_found(wanted)
        return wanted

    def schema_id(self) -> int:
        text = self.call.parameter("id")
        number = int(text[:12]) if text.isascii() and text.isdigit() and len(text) <= 12 else 0
        if not 0 < number <= NUMBER_MAX:
            raise errors.schema_not_found(text[:100])
        return number

    def body(self) -> dict[str, Any]:
        if len(self.call.request.body) > BODY_BYTES_MAX:
            raise errors.RegistryError(42209, f"the body is larger than {BODY_BYTES_MAX} bytes")
        try:
            value = json_body.parse(self.call.request.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise errors.RegistryError(errors.UNPROCESSABLE, "the body is not a JSON object")
        return value

    # What the user may do

    def require(self, action: Action, subject: str) -> None:
        if not (self.may_read(subject) if action == "read" else self._may(action, subject)):
            raise errors.denied(self.call.user.name, _OPERATIONS[action], f"Subject: {subject}")

    def require_read(self) -> str:
        """The subject of the path, if the user may read it."""
        subject = self.subject
        self.require("read", subject)
        return subject

    def require_policymaker(self) -> None:
        user = self.call.user
        if not user.tags & POLICYMAKERS:
            raise errors.denied(user.name, "Configure", "all subjects")

    def may_read(self, subject: str) -> bool:
        user = self.call.user
        return (
            bool(user.tags & MANAGERS) or self._may("read", subject) or self._may("write", subject)
        )

    def _may(self, action: Action, subject: str) -> bool:
        return self.call.user.may(VHOST, action, subject)

    def readable_uses(self, schema_id: int, *, deleted: bool = True) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema, as far as the user may know."""
        uses = self.schemas.uses(schema_id, deleted=deleted)
        return [use for use in uses if self.may_read(use[0])]

    def may_read_schema(self, schema_id: int) -> bool:
        return any(self.may_read(name) for name, _ in self.schemas.uses(schema_id, deleted=True))


def checked_subject(name: str) -> str:
    """Without the name of the default context. Raises RegistryError."""
    name = name.removeprefix(":.:")
    if name.startswith(":."):
        raise errors.invalid_subject(name, "there is one context only, the default")
    if not name or name in _RESERVED:
        raise errors.invalid_subject(name, "the name is reserved")
    if len(name.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        raise errors.invalid_subject(name, f"it is longer than {SUBJECT_BYTES_MAX} bytes")
    if not name.isprintable():
        raise errors.invalid_subject(name, "it has characters that cannot be printed")
    return name


def parse_version(text: object) -> int | None:
    """None: the latest."""
    if text in (LATEST, "-1", -1):
        return None
    shown = str(text)
    if isinstance(text, bool) or not shown.isascii() or not shown.isdigit() or len(shown) > 12:
        raise errors.invalid_version(shown)
    number = int(shown[:12])
    if not 1 <= number <= NUMBER_MAX:
        raise errors.invalid_version(shown)
    return number
