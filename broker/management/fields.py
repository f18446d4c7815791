"""Fields of a request's JSON body, read as RabbitMQ reads them: leniently where it is lenient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import bad_request
from broker.protocol.tables import encode_table, raw_text
from queues.arguments import SHORT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol.tables import Table

_TRUTH: Final[dict[object, bool]] = {"true": True, "false": False}


def need(body: Mapping[str, Any], *keys: str) -> list[Any]:
    """The values of fields that must be there."""
    missing = [f"{{key_missing,{key}}}" for key in keys if key not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")
    return [body[key] for key in keys]


def truth(body: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = body.get(key, default)
    if isinstance(value, str):
        value = _TRUTH.get(value)
    if isinstance(value, bool):
        return value
    raise bad_request(f"{key}: {body[key]!r} is not a boolean")


def number(body: Mapping[str, Any], key: str, *, least: int, most: int) -> int:
    """A whole number, which may be written as a text."""
    value = body.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise bad_request(f"{key}: {value!r} is not a number from {least} to {most}")
    return value


def short_text(body: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A text that fits AMQP's short strings."""
    value = body.get(key, default)
    if not isinstance(value, str) or not _fits(value):
        raise bad_request(f"{key}: it must be a text of at most {SHORT_BYTES_MAX} bytes")
    return value


def checked_name(name: str) -> str:
    """A name out of a path."""
    if not name or not _fits(name):
        raise bad_request(f"a name has 1 to {SHORT_BYTES_MAX} bytes")
    return name


def _fits(text: str) -> bool:
    try:
        return len(raw_text(text)) <= SHORT_BYTES_MAX
    except UnicodeEncodeError:  # half of a character
        return False


def table(body: Mapping[str, Any], key: str = "arguments") -> Table:
    """An object that can be a field table."""
    value = body.get(key, {})
    if value == []:  # how some callers write an empty one
        value = {}
    if not isinstance(value, dict):
        raise bad_request(f"{key}: it must be an object")
    try:
        encode_table(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise bad_request(f"{key}: {error}") from None
    return value
