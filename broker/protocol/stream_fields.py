"""The kinds of fields that messages of the stream protocol are made of.

Numbers are little-endian. A text is its length in bytes (u16) and UTF-8; a list is its count (u32)
and its items. What fills the rest of a body comes last and has no length of its own.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
M = TypeVar("M")

Buffer: TypeAlias = bytes | memoryview

TEXT_BYTES_MAX: Final = 2**16 - 1
# An item of a list costs the reader some hundred bytes, however few it has on the wire.
ITEMS_MAX: Final = 100_000


class MalformedError(Exception):
    """Bytes that are not the message they should be, or a message that cannot be written."""


class Cursor:
    """A body, read from its start."""

    __slots__ = ("data", "position")

    def __init__(self, data: Buffer) -> None:
        self.data = memoryview(data)
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, count: int) -> memoryview:
        if count > self.left:
            raise MalformedError("a message is cut short")
        start = self.position
        self.position = start + count
        return self.data[start : self.position]


class Field(Generic[T]):
    """How one value is written and read."""

    __slots__ = ("read", "write")

    def __init__(
        self, write: Callable[[list[Buffer], T], None], read: Callable[[Cursor], T]
    ) -> None:
        self.write = write
        self.read = read


def _number(code: str) -> Field[int]:
    layout = struct.Struct("<" + code)

    def write(pieces: list[Buffer], value: int) -> None:
        try:
            pieces.append(layout.pack(value))
        except struct.error:
            raise MalformedError(f"{value!r} is no number of {layout.size} bytes") from None

    def read(cursor: Cursor) -> int:
        number: int = layout.unpack(cursor.take(layout.size))[0]
        return number

    return Field(write, read)


U8: Final = _number("B")
U16: Final = _number("H")
U32: Final = _number("I")
U64: Final = _number("Q")
I64: Final = _number("q")


def _write_text(pieces: list[Buffer], value: str) -> None:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise MalformedError("a text that is no Unicode") from None
    if len(raw) > TEXT_BYTES_MAX:
        raise MalformedError(f"a text of {len(raw)} bytes")
    U16.write(pieces, len(raw))
    pieces.append(raw)


def _read_text(cursor: Cursor) -> str:
    raw = cursor.take(U16.read(cursor))
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise MalformedError("a text is not UTF-8") from None


def _write_flag(pieces: list[Buffer], value: bool) -> None:  # noqa: FBT001 - the value itself
    pieces.append(b"\1" if value else b"\0")


def _read_flag(cursor: Cursor) -> bool:
    value = U8.read(cursor)
    if value > 1:
        raise MalformedError(f"a flag of {value}")
    return value == 1


def _write_blob(pieces: list[Buffer], value: bytes) -> None:
    U32.write(pieces, len(value))
    pieces.append(value)


def _write_rest(pieces: list[Buffer], value: bytes) -> None:
    pieces.append(value)


def _write_last_text(pieces: list[Buffer], value: str) -> None:
    if value:
        _write_text(pieces, value)


def _read_last_text(cursor: Cursor) -> str:
    return _read_text(cursor) if cursor.left else ""


TEXT: Final = Field(_write_text, _read_text)
# At the end of a message that earlier versions had without it: left out if it is empty.
LAST_TEXT: Final = Field(_write_last_text, _read_last_text)
FLAG: Final = Field(_write_flag, _read_flag)
BLOB: Final = Field(_write_blob, lambda cursor: bytes(cursor.take(U32.read(cursor))))
REST: Final = Field(_write_rest, lambda cursor: bytes(cursor.take(cursor.left)))


def list_of(item: Field[T], items_max: int = ITEMS_MAX) -> Field[tuple[T, ...]]:
    def write(pieces: list[Buffer], values: Iterable[T]) -> None:
        items = tuple(values)
        if len(items) > items_max:
            raise MalformedError(f"a list of {len(items)} items; {items_max} are allowed")
        U32.write(pieces, len(items))
        for value in items:
            item.write(pieces, value)

    def read(cursor: Cursor) -> tuple[T, ...]:
        count = U32.read(cursor)
        if count > items_max:
            raise MalformedError(f"a list of {count} items; {items_max} are allowed")
        return tuple([item.read(cursor) for _ in range(count)])

    return Field(write, read)


def record(kind: Callable[..., M], *fields: Field[Any]) -> Field[M]:
    """A tuple of fields, in this order, of a NamedTuple."""

    def write(pieces: list[Buffer], value: Any) -> None:
        for field, item in zip(fields, value, strict=True):
            field.write(pieces, item)

    def read(cursor: Cursor) -> M:
        return kind(*[field.read(cursor) for field in fields])

    return Field(write, read)
