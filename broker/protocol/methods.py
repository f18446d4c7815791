"""Every AMQP method, encoded and decoded from pamqp's catalogue of classes and argument types.

pamqp lists the methods, their arguments and types; the bytes are read and written here because it
validates names more strictly than any broker does (a queue may be called "my queue").
"""

import struct
from collections.abc import Callable
from typing import Any, Final, cast

from pamqp import commands
from pamqp.base import Frame

from broker.protocol.constants import FRAME_END_BYTE, FRAME_METHOD
from broker.protocol.errors import ConnectionFailure
from broker.protocol.tables import decode_table, encode_table, raw_text

_HEAD = struct.Struct(">BHII")
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_FIXED: Final = {"octet": _U8, "short": _U16, "long": _U32, "longlong": _U64}

# Arguments in wire order as (name, type), with a run of bits told apart because bits share octets.
METHODS: Final = cast("dict[int, type[Frame]]", commands.INDEX_MAPPING)
_LAYOUTS: Final[dict[int, tuple[tuple[str, str], ...]]] = {
    key: tuple((name, kind.amqp_type(name)) for name in kind.attributes())
    for key, kind in METHODS.items()
}


def name_of(key: int) -> str:
    """`Queue.Declare` for 0x0032000A; the numbers where there is no such method."""
    kind = METHODS.get(key)
    return kind.name if kind is not None else f"{key >> 16}.{key & 0xFFFF}"


def decode(key: int, args: bytes) -> Frame:
    """The method with this key and argument bytes. What is malformed closes the connection."""
    kind = METHODS.get(key)
    if kind is None:
        raise ConnectionFailure(540, f"method {key >> 16}.{key & 0xFFFF}", method=key)
    method: Frame = kind.__new__(kind)
    pos = bit = 0
    try:
        for name, type_name in _LAYOUTS[key]:
            if type_name == "bit":
                setattr(method, name, bool(args[pos] >> bit & 1))
                bit += 1
                if bit == 8:
                    pos, bit = pos + 1, 0
                continue
            if bit:
                pos, bit = pos + 1, 0
            value, pos = _READERS[type_name](args, pos)
            setattr(method, name, value)
    except (ValueError, IndexError, struct.error) as error:
        raise ConnectionFailure(501, f"cannot decode {kind.name}: {error}", method=key) from error
    if pos + bool(bit) != len(args):
        raise ConnectionFailure(501, f"cannot decode {kind.name}: trailing bytes", method=key)
    return method


def encode(channel: int, kind: type[Frame], **arguments: object) -> bytes:
    """A whole method frame; arguments that are not given are zero, empty or false."""
    out: list[bytes] = []
    octet = bit = 0
    for name, type_name in _LAYOUTS[kind.index]:
        if type_name == "bit":
            octet |= bool(arguments.pop(name, False)) << bit
            bit += 1
            continue
        if bit:
            out.append(_U8.pack(octet))
            octet = bit = 0
        out.append(_WRITERS[type_name](arguments.pop(name, None)))
    if bit:
        out.append(_U8.pack(octet))
    assert not arguments, f"{kind.name} has no argument {', '.join(arguments)}"
    body = b"".join(out)
    head = _HEAD.pack(FRAME_METHOD, channel, len(body) + 4, kind.index)
    return head + body + FRAME_END_BYTE


def _read_fixed(layout: struct.Struct) -> Callable[[bytes, int], tuple[object, int]]:
    def read(data: bytes, pos: int) -> tuple[object, int]:
        return layout.unpack_from(data, pos)[0], pos + layout.size

    return read


def _read_short_string(data: bytes, pos: int) -> tuple[object, int]:
    end = pos + 1 + data[pos]
    if end > len(data):
        raise ValueError("short string runs past its frame")
    return short_text(data[pos + 1 : end]), end


def short_text(raw: bytes) -> str:
    """Names and keys are UTF-8; raises ValueError for any other bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("malformed UTF-8 in a short string") from None


def _read_long_string(data: bytes, pos: int) -> tuple[object, int]:
    start = pos + 4
    end = start + int(_U32.unpack_from(data, pos)[0])
    if end > len(data):
        raise ValueError("long string runs past its frame")
    return data[start:end], end


_READERS: Final[dict[str, Callable[[bytes, int], tuple[object, int]]]] = {
    **{name: _read_fixed(layout) for name, layout in _FIXED.items()},
    "timestamp": _read_fixed(_U64),
    "shortstr": _read_short_string,
    "longstr": _read_long_string,
    "table": decode_table,
}


def _write_fixed(layout: struct.Struct) -> Callable[[Any], bytes]:
    return lambda value: layout.pack(value or 0)


def short_string(value: str | bytes | None) -> bytes:
    raw = value if isinstance(value, bytes) else raw_text(value or "")
    return _U8.pack(len(raw)) + raw


def _write_long_string(value: Any) -> bytes:
    raw = value if isinstance(value, bytes) else raw_text(value or "")
    return _U32.pack(len(raw)) + raw


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    **{name: _write_fixed(layout) for name, layout in _FIXED.items()},
    "timestamp": _write_fixed(_U64),
    "shortstr": short_string,
    "longstr": _write_long_string,
    "table": lambda value: encode_table(value or {}),
}
