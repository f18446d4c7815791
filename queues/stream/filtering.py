"""`x-stream-filter`: which records a consumer wants, by headers, compared as raw bytes."""

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from broker.protocol.tables import encode_value, raw_text
from queues.arguments import InvalidArgumentError
from queues.stream.content import split_headers

FILTER_HEADERS_MAX: Final = 16
# Answers remembered, by properties: most publishers repeat a few. Then the memory starts anew.
REMEMBERED_MAX: Final = 4096

# Every way to write a number; clients differ in which they take.
_NUMBERS: Final = tuple(
    (kind.encode(), struct.Struct(layout))
    for kind, layout in zip(
        "bBsuIilLfd", (">b", ">B", ">h", ">H", ">i", ">I", ">q", ">Q", ">f", ">d"), strict=True
    )
)


class HeaderFilter:
    """All its headers have to be there with just its values."""

    def __init__(self, wanted: Mapping[str, object]) -> None:
        """Raises InvalidArgumentError."""
        if not 1 <= len(wanted) <= FILTER_HEADERS_MAX:
            raise _wrong(f"expected 1 to {FILTER_HEADERS_MAX} headers")
        self._wanted = {raw_text(name): _spellings(name, value) for name, value in wanted.items()}
        self._answers: dict[bytes, bool] = {}

    def wants(self, properties: bytes) -> bool:
        answer = self._answers.get(properties)
        if answer is None:
            if len(self._answers) >= REMEMBERED_MAX:
                self._answers.clear()
            answer = self._answers[properties] = self._look(properties)
        return answer

    def _look(self, properties: bytes) -> bool:
        if not all(name in properties for name in self._wanted):
            return False
        try:
            headers = split_headers(properties)
        except (ValueError, IndexError, struct.error):
            return False  # not of an AMQP publisher's making
        return all(headers.get(name) in spellings for name, spellings in self._wanted.items())


def _spellings(name: str, value: object) -> frozenset[bytes]:
    if isinstance(value, bool) or value is None or isinstance(value, str | bytes | datetime):
        return frozenset({encode_value(value)})
    if isinstance(value, int | float):
        return frozenset(_written(value))
    raise _wrong(f"header '{name}' has neither a text nor a number as its value")


def _written(value: float) -> list[bytes]:
    found = []
    for kind, layout in _NUMBERS:
        try:
            raw = layout.pack(value)
        except (struct.error, OverflowError):
            continue
        if layout.unpack(raw)[0] == value:
            found.append(kind + raw)
    return found


def _wrong(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError("x-stream-filter", reason)
