"""Fields of requests, read strictly: what is unknown or of another kind is told, not guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.protocol.tables import raw_text
from broker.topics.problems import bad_request
from queues.arguments import SHORT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker.http.messages import Request

OFFSET_MAX: Final = 2**63 - 1
PARTITIONS_NAMED_MAX: Final = 1024  # as many as a topic can have


def only(body: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse what was misspelt before anything is done."""
    for key in body:
        if key not in known:
            raise bad_request(f"{key!r} is unknown; there are {', '.join(sorted(known))}")


def name_in(body: Mapping[str, Any], key: str) -> str:
    """A text that can be a name: 1 to 255 bytes."""
    return checked_name(key, body.get(key))


def checked_name(key: str, value: object) -> str:
    if isinstance(value, str) and value:
        try:
            if len(raw_text(value)) <= SHORT_BYTES_MAX:
                return value
        except UnicodeEncodeError:  # half of a character
            pass
    raise bad_request(f"{key}: a text of 1 to {SHORT_BYTES_MAX} bytes is needed")


def number_in(
    body: Mapping[str, Any], key: str, default: int | None, *, least: int, most: int
) -> int | None:
    value = body.get(key)
    if value is None:
        return default
    return _checked_number(key, value, least=least, most=most)


def _checked_number(key: str, value: object, *, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise bad_request(f"{key}: {value!r} is not a whole number from {least} to {most}")
    return value


def offsets_in(body: Mapping[str, Any]) -> dict[int, int] | None:
    """`offsets`, a list of {partition, offset}, by partition; None if there is none."""
    rows = body.get("offsets")
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) > PARTITIONS_NAMED_MAX:
        raise bad_request("offsets: a list of objects with partition and offset is needed")
    found: dict[int, int] = {}
    for row in rows:
        if not isinstance(row, dict) or row.keys() != {"partition", "offset"}:
            raise bad_request(f"offsets: {row!r} is not an object with partition and offset")
        number = _checked_number("partition", row["partition"], least=0, most=2**32 - 1)
        if number in found:
            raise bad_request(f"offsets: partition {number} is there twice")
        found[number] = _checked_number("offset", row["offset"], least=0, most=OFFSET_MAX)
    return found


def offset_rows(offsets: Mapping[int, int]) -> list[dict[str, int]]:
    """The same the other way round."""
    return [{"partition": number, "offset": offsets[number]} for number in sorted(offsets)]


# In the query


def text_asked(request: Request, key: str, default: str = "") -> str:
    return request.query.get(key, [default])[-1]


def number_asked(request: Request, key: str, default: int, *, least: int, most: int) -> int:
    text = text_asked(request, key)
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or not least <= int(text) <= most:
        raise bad_request(f"{key}: {text!r} is not a whole number from {least} to {most}")
    return int(text)
