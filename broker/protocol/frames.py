"""The frame reader: the bytes of one socket read in, batches of methods out.

    frame   0      1         3          7            size+7
            +------+---------+----------+------------+-----------+
            | type | channel | size u32 | payload    | 0xCE      |
            +------+---------+----------+------------+-----------+
    publish = method frame, header frame, body frames until `body_size` bytes have come

A batch is (channel, method key, items): consecutive methods of one kind on one channel come as one
batch, so that whoever handles them pays its overhead once; a run of publishes that are all alike
(see runs.py) is a batch of its own. An item is
- for methods with content (publish, deliver, return, get-ok): a `Content`,
- for ack, nack and reject: (delivery tag, bits),
- for every other method: its argument bytes.
"""

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from broker.protocol.constants import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CLASS_BASIC,
    CONTENT_METHODS,
    FRAME_BODY,
    FRAME_END,
    FRAME_END_BYTE,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_MIN_BYTES,
    SETTLE_METHODS,
)
from broker.protocol.errors import ConnectionFailure
from broker.protocol.runs import ContentRun, run_length

CONTENT_TOO_LARGE: Final = 0  # stands in for a method key: the item is the announced body size

_FRAME = struct.Struct(">BHI")
_METHOD = struct.Struct(">BHII")
_KEY = struct.Struct(">I")
_CONTENT = struct.Struct(">BHIHHQH")  # a header frame up to and with the property flags
_SETTLE = struct.Struct(">QB")

_HEADER_MIN_BYTES: Final = 14  # class, weight, body size, property flags
_SETTLE_BYTES: Final = 13  # method key, delivery tag, bits
# How often a run is looked for in vain in one read: clients with ever new properties have none.
_RUN_TRIES: Final = 4

# Method arguments; header frame and body frame as they came, a body of many frames as if in one;
# payload size of the header frame; property flags; body size. A tuple, as one is made per message.
Content: TypeAlias = tuple[bytes, bytes, int, int, int]
Batch: TypeAlias = tuple[int, int, Sequence[object]]


class _Assembly:
    """A content that does not lie whole in the buffer, or has frames of others between its own."""

    __slots__ = (
        "args",
        "body_bytes",
        "buffer",
        "discarded",
        "flags",
        "header_bytes",
        "key",
        "missing",
    )

    def __init__(self, key: int, args: bytes) -> None:
        self.key = key
        self.args = args
        self.buffer = bytearray()  # not a list: tiny body frames must not cost an object each
        self.header_bytes = -1  # until the header has come
        self.flags = 0
        self.body_bytes = 0
        self.missing = 0
        self.discarded = False

    def content(self) -> Content:
        return self.args, bytes(self.buffer), self.header_bytes, self.flags, self.body_bytes


class FrameReader:
    """Cuts a stream of bytes into batches. After a failure it takes no more bytes.

    A payload may be as long as frame_max, which by the specification counts the eight bytes around
    it too: clients forget those, and RabbitMQ lets them.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_limit",
        "_message_bytes_max",
        "_need",
        "_open",
        "failure",
    )

    def __init__(self, *, frame_max: int = FRAME_MIN_BYTES, message_bytes_max: int) -> None:
        self._limit = frame_max
        self._message_bytes_max = message_bytes_max
        self._held: list[bytes] = []  # the start of a frame whose rest has not come
        self._held_bytes = 0
        self._need = 0  # how many bytes must be there before looking again is worth it
        self._open: dict[int, _Assembly] = {}
        self.failure: ConnectionFailure | None = None

    def set_limits(self, *, frame_max: int, message_bytes_max: int) -> None:
        self._limit = frame_max
        self._message_bytes_max = message_bytes_max

    @property
    def partial_bytes(self) -> int:
        """What is held of frames and contents that have not come to their end."""
        held = sum([len(data) for data in self._held])
        return held + sum([len(assembly.buffer) for assembly in self._open.values()])

    def abandon(self, channel: int) -> None:
        """We closed this channel: skip what still comes for it, until the peer's close-ok."""
        self._open[channel] = _ABANDONED

    def feed(self, data: bytes) -> list[Batch]:
        """All methods that are complete now. A mistake behind them ends up in `failure`."""
        if self._held:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes < self._need:
                return []
            data = b"".join(self._held)
            self._held.clear()
        batches: list[Batch] = []
        try:
            pos = self._scan(data, batches)
        except ConnectionFailure as failure:
            self.failure = failure
            return batches
        if pos < len(data):
            self._held.append(data[pos:])
            self._held_bytes = len(data) - pos
        return batches

    def _scan(self, data: bytes, batches: list[Batch]) -> int:  # noqa: C901 - the hot loop: one pass
        """Parse frames into `batches`; the position of the first frame that is not complete.

        A publish that lies whole in the buffer, with its body in one frame, is taken in one step;
        any other goes through an `_Assembly`, which is also where its mistakes are named.
        """
        end = len(data)
        pos = 0
        last_key = last_channel = -1
        items: list[object] = []
        open_contents = self._open
        limit = self._limit
        max_body_bytes = min(limit, self._message_bytes_max)  # in one frame, that is
        tries = _RUN_TRIES
        item: object
        while end - pos >= 11:
            kind, channel, size, key = _METHOD.unpack_from(data, pos)
            after = pos + size + 8
            if size > limit:
                raise _oversized(size, limit)
            if after > end:
                self._need = after - pos
                return pos
            if data[after - 1] != FRAME_END:
                raise _bad_frame_end(kind, channel, size)
            if kind != FRAME_METHOD or channel in open_contents or size < 4:
                self._other_frame(kind, channel, data[pos:after], batches)
                last_key = -1
                pos = after
                continue
            if key in CONTENT_METHODS:
                done = end + 1
                if end - after >= 21:
                    kind, of, size, class_id, _, body_bytes, flags = _CONTENT.unpack_from(
                        data, after
                    )
                    body_at = after + size + 8
                    ours = kind == FRAME_HEADER and of == channel and class_id == CLASS_BASIC
                    if ours and _HEADER_MIN_BYTES <= size <= limit:
                        if body_bytes == 0:
                            done = body_at
                        elif max_body_bytes >= body_bytes < end - body_at - 7:
                            kind, of, size_of_body = _FRAME.unpack_from(data, body_at)
                            if kind == FRAME_BODY and of == channel and size_of_body == body_bytes:
                                done = body_at + body_bytes + 8
                if done > end or data[done - 1] != FRAME_END or data[body_at - 1] != FRAME_END:
                    open_contents[channel] = _Assembly(key, data[pos + 11 : after - 1])
                    last_key = -1
                    pos = after
                    continue
                if tries and body_bytes and key == BASIC_PUBLISH:
                    count = run_length(data, pos, done - 1 - body_bytes, done)
                    if count > 1:
                        run = ContentRun(
                            memoryview(data)[pos : pos + count * (done - pos)],
                            done - pos,
                            after - pos,
                            channel=channel,
                            header_bytes=size,
                            flags=flags,
                            body_bytes=body_bytes,
                        )
                        batches.append((channel, key, run))
                        last_key = -1
                        pos += run.size_bytes
                        continue
                    tries -= 1
                item = (data[pos + 11 : after - 1], data[after:done], size, flags, body_bytes)
                after = done
            elif key in SETTLE_METHODS:
                if size != _SETTLE_BYTES:
                    raise ConnectionFailure(501, "arguments do not fill the frame", method=key)
                item = _SETTLE.unpack_from(data, pos + 11)
            else:
                item = data[pos + 11 : after - 1]
            pos = after
            if key == last_key and channel == last_channel:
                items.append(item)
            else:
                items = [item]
                batches.append((channel, key, items))
                last_key = key
                last_channel = channel
        return self._scan_end(data, pos, batches)

    def _scan_end(self, data: bytes, pos: int, batches: list[Batch]) -> int:
        """What is left is too short for a method: heartbeats, or the start of a frame."""
        while len(data) - pos >= 7:
            kind, channel, size = _FRAME.unpack_from(data, pos)
            if size > self._limit:
                raise _oversized(size, self._limit)
            after = pos + size + 8
            self._need = after - pos
            if after > len(data):
                return pos
            if data[after - 1] != FRAME_END:
                raise _bad_frame_end(kind, channel, size)
            self._other_frame(kind, channel, data[pos:after], batches)
            pos = after
        self._need = 7
        return pos

    def _other_frame(self, kind: int, channel: int, frame: bytes, batches: list[Batch]) -> None:
        """Heartbeats, the pieces of a content under assembly, and mistakes."""
        assembly = self._open.get(channel)
        if kind == FRAME_HEARTBEAT:
            if channel:
                raise ConnectionFailure(505, f"heartbeat on channel {channel}")
        elif kind not in _KNOWN_FRAMES:
            raise ConnectionFailure(501, f"unknown frame type {kind}")
        elif assembly is _ABANDONED:
            self._skip(kind, channel, frame, batches)
        elif assembly is None:
            if kind == FRAME_METHOD:
                raise ConnectionFailure(501, "method frame too short to name its method")
            raise ConnectionFailure(505, "expected method frame, got non method frame instead")
        elif assembly.header_bytes < 0:
            if kind != FRAME_HEADER:
                raise _unexpected(
                    "content header for class 60", "non content header frame", assembly
                )
            self._take_header(channel, assembly, frame, batches)
        else:
            if kind != FRAME_BODY:
                raise _unexpected("content body", "non content body frame", assembly)
            self._take_body(channel, assembly, frame, batches)

    def _skip(self, kind: int, channel: int, frame: bytes, batches: list[Batch]) -> None:
        """An abandoned channel: what the peer sent before it saw the close means nothing."""
        key = _KEY.unpack_from(frame, 7)[0] if kind == FRAME_METHOD and len(frame) >= 12 else 0
        if key == CHANNEL_CLOSE_OK:
            del self._open[channel]
        if key in (CHANNEL_CLOSE_OK, CHANNEL_CLOSE):
            batches.append((channel, key, [frame[11:-1]]))

    def _take_header(
        self, channel: int, assembly: _Assembly, frame: bytes, batches: list[Batch]
    ) -> None:
        if len(frame) < _HEADER_MIN_BYTES + 8:
            raise ConnectionFailure(501, "content header too short")
        _, _, size, class_id, _, body_bytes, flags = _CONTENT.unpack_from(frame)
        if class_id != CLASS_BASIC:
            raise _unexpected("content header for class 60", f"one for class {class_id}", assembly)
        assembly.header_bytes = size
        assembly.flags = flags
        assembly.body_bytes = assembly.missing = body_bytes
        if body_bytes > self._message_bytes_max:
            assembly.discarded = True
            batches.append((channel, CONTENT_TOO_LARGE, [body_bytes]))
        elif body_bytes:
            assembly.buffer += frame + _FRAME.pack(FRAME_BODY, channel, body_bytes)
        else:
            assembly.buffer += frame
            self._complete(channel, assembly, batches)

    def _take_body(
        self, channel: int, assembly: _Assembly, frame: bytes, batches: list[Batch]
    ) -> None:
        assembly.missing -= len(frame) - 8
        if assembly.missing < 0:
            raise ConnectionFailure(501, "body is longer than announced", method=assembly.key)
        if not assembly.discarded:
            assembly.buffer += memoryview(frame)[7:-1]
        if assembly.missing == 0:
            assembly.buffer += FRAME_END_BYTE
            self._complete(channel, assembly, batches)

    def _complete(self, channel: int, assembly: _Assembly, batches: list[Batch]) -> None:
        del self._open[channel]
        if not assembly.discarded:
            batches.append((channel, assembly.key, [assembly.content()]))


_ABANDONED: Final = _Assembly(0, b"")
_KNOWN_FRAMES: Final = frozenset({FRAME_METHOD, FRAME_HEADER, FRAME_BODY})


def _unexpected(wanted: str, got: str, assembly: _Assembly) -> ConnectionFailure:
    return ConnectionFailure(505, f"expected {wanted}, got {got} instead", method=assembly.key)


def _oversized(size: int, limit: int) -> ConnectionFailure:
    return ConnectionFailure(501, f"frame with {size} bytes of payload, frame_max is {limit}")


def _bad_frame_end(kind: int, channel: int, size: int) -> ConnectionFailure:
    return ConnectionFailure(
        501, f"frame of type {kind} on channel {channel} with {size} bytes lacks its end octet"
    )
