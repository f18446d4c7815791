"""AMQP field tables: decoding, encoding, and walking raw bytes without decoding them.

pamqp has a codec for tables too. This one exists because headers pass through the broker: pamqp
reads a double and writes a float, recurses as deep as a peer nests, and copies the rest of the
table for each value.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

FieldValue: TypeAlias = object
Table: TypeAlias = Mapping[str, FieldValue]

NESTING_MAX: Final = 64  # deeper than any real header, far from the interpreter's recursion limit
_TOO_DEEP: Final = f"fields nested deeper than {NESTING_MAX}"

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_DECIMAL = struct.Struct(">Bi")

_FIXED: Final[dict[int, struct.Struct]] = {
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): _I32,
    ord("i"): _U32,
    ord("l"): _I64,
    ord("L"): _U64,
    ord("f"): struct.Struct(">f"),
    ord("d"): _DOUBLE,
}
_SIZES: Final = {
    **{kind: layout.size for kind, layout in _FIXED.items()},
    ord("t"): 1,
    ord("D"): 5,
    ord("T"): 8,
    ord("V"): 0,
}
_STRINGS: Final = frozenset(b"Sx")
_NESTED: Final = frozenset(b"AF")
_TABLE: Final = ord("F")


def text(raw: bytes) -> str:
    """A short string's text; bytes that are not UTF-8 survive a round trip through `raw_text`."""
    return raw.decode("utf-8", "surrogateescape")


def raw_text(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def decode_table(data: bytes, pos: int = 0) -> tuple[Table, int]:
    """The table at `pos` and the position behind it. Raises ValueError on malformed bytes."""
    try:
        return _table(data, pos, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(f"malformed field table: {error}") from error


def _span(data: bytes, pos: int) -> tuple[int, int]:
    start = pos + 4
    end = start + int(_U32.unpack_from(data, pos)[0])
    if end > len(data):
        raise ValueError("field is longer than the data that holds it")
    return start, end


def _table(data: bytes, pos: int, depth: int) -> tuple[Table, int]:
    pos, end = _span(data, pos)
    table: dict[str, FieldValue] = {}
    while pos < end:
        key_end = pos + 1 + data[pos]
        if key_end >= end:
            raise ValueError("field name runs past its table")
        key = text(data[pos + 1 : key_end])
        table[key], pos = _value(data, key_end, depth + 1)
    if pos != end:
        raise ValueError("field value runs past its table")
    return table, end


def _array(data: bytes, pos: int, depth: int) -> tuple[list[FieldValue], int]:
    pos, end = _span(data, pos)
    array: list[FieldValue] = []
    while pos < end:
        value, pos = _value(data, pos, depth + 1)
        array.append(value)
    if pos != end:
        raise ValueError("field value runs past its array")
    return array, end


def _value(data: bytes, pos: int, depth: int) -> tuple[FieldValue, int]:
    if depth > NESTING_MAX:
        raise ValueError(_TOO_DEEP)
    kind = data[pos]
    pos += 1
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(data, pos)[0], pos + fixed.size
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"unknown field type {chr(kind)!r}")
    return decoder(data, pos, depth)


def _long_string(data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    start, end = _span(data, pos)
    raw = data[start:end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def _binary(data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    start, end = _span(data, pos)
    return bytearray(data[start:end]), end


def _boolean(data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    return data[pos] != 0, pos + 1


def _void(_data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    return None, pos


def _decimal(data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    scale, unscaled = _DECIMAL.unpack_from(data, pos)
    return Decimal(unscaled).scaleb(-scale), pos + 5


def _timestamp(data: bytes, pos: int, _depth: int) -> tuple[FieldValue, int]:
    seconds = _U64.unpack_from(data, pos)[0]
    try:
        return datetime.fromtimestamp(seconds, UTC), pos + 8
    except (ValueError, OverflowError, OSError):  # some clients send milliseconds or worse
        return seconds, pos + 8


_DECODERS: Final[dict[int, Callable[[bytes, int, int], tuple[FieldValue, int]]]] = {
    ord("S"): _long_string,
    ord("x"): _binary,
    ord("t"): _boolean,
    ord("V"): _void,
    ord("D"): _decimal,
    ord("T"): _timestamp,
    ord("F"): _table,
    ord("A"): _array,
}


def split_table(data: bytes, pos: int = 0) -> tuple[dict[bytes, bytes], int]:
    """Names and *raw* values (type octet first) of the table at `pos`, and the position behind it.

    Editing a header table this way keeps every value that is not touched bit for bit. Nested
    values are walked too, so that whatever passes here can be decoded later.
    """
    try:
        pos, end = _span(data, pos)
        entries: dict[bytes, bytes] = {}
        while pos < end:
            key_end = pos + 1 + data[pos]
            value_end = _skip_value(data, key_end, 1)
            entries[data[pos + 1 : key_end]] = data[key_end:value_end]
            pos = value_end
    except (IndexError, struct.error) as error:
        raise ValueError(f"malformed field table: {error}") from error
    if pos != end:
        raise ValueError("field value runs past its table")
    return entries, end


def _skip_value(data: bytes, pos: int, depth: int) -> int:
    """The position behind a value, which `decode_table` would take as well."""
    if depth > NESTING_MAX:
        raise ValueError(_TOO_DEEP)
    kind = data[pos]
    size = _SIZES.get(kind)
    if size is not None:
        return pos + 1 + size
    if kind in _STRINGS:
        return _span(data, pos + 1)[1]
    if kind in _NESTED:
        return _skip_nested(data, pos + 1, depth + 1, named=kind == _TABLE)
    raise ValueError(f"unknown field type {chr(kind)!r}")


def _skip_nested(data: bytes, pos: int, depth: int, *, named: bool) -> int:
    pos, end = _span(data, pos)
    while pos < end:
        if named:
            pos += 1 + data[pos]
        pos = _skip_value(data, pos, depth)
    if pos != end:
        raise ValueError("field value runs past what holds it")
    return end


def check_table(data: bytes, pos: int, end: int) -> None:
    """Raise ValueError unless a table that can be decoded fills `pos` to `end`.

    Cheap, for headers that pass through: no entry is copied, no function called per plain entry.
    """
    sizes = _SIZES
    length_at = _U32.unpack_from
    pos += 4
    try:
        while pos < end:
            pos += 1 + data[pos]
            kind = data[pos]
            size = sizes.get(kind)
            if size is not None:
                pos += 1 + size
            elif kind in _STRINGS:
                pos += 5 + length_at(data, pos + 1)[0]
            else:
                pos = _skip_value(data, pos, 1)
    except (IndexError, struct.error) as error:
        raise ValueError(f"malformed field table: {error}") from error
    if pos != end or end > len(data):
        raise ValueError("field value runs past its table")


def join_table(entries: Mapping[bytes, bytes]) -> bytes:
    """The inverse of `split_table`."""
    body = b"".join([bytes((len(key),)) + key + value for key, value in entries.items()])
    return _U32.pack(len(body)) + body


def encode_table(table: Mapping[str, FieldValue]) -> bytes:
    return join_table({raw_text(key): encode_value(value) for key, value in table.items()})


def encode_value(value: FieldValue) -> bytes:
    """A field value with its type octet, in the types RabbitMQ itself writes."""
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, str):
        raw = raw_text(value)
        return b"S" + _U32.pack(len(raw)) + raw
    if isinstance(value, dict):
        return b"F" + encode_table(value)
    if isinstance(value, list):
        body = b"".join([encode_value(item) for item in value])
        return b"A" + _U32.pack(len(body)) + body
    return _encode_scalar(value)


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return b"I" + _I32.pack(value)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return b"l" + _I64.pack(value)
    raise ValueError(f"integer does not fit a field: {value}")


def _encode_scalar(value: FieldValue) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, datetime):
        return b"T" + _U64.pack(int(value.timestamp()))
    if isinstance(value, bytes):
        return b"S" + _U32.pack(len(value)) + value
    if isinstance(value, bytearray):
        return b"x" + _U32.pack(len(value)) + value
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return b"D" + _DECIMAL.pack(scale, int(value.scaleb(scale)))
    raise ValueError(f"no field type for {type(value).__name__}")


def encode_long(value: int) -> bytes:
    """A 64-bit field, for counters that RabbitMQ writes as `long`."""
    return b"l" + _I64.pack(value)
