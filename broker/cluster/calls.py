"""Questions to a queue's leader, and their answers; asked again of the next leader if need be."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import Final, TypeAlias

from broker.cluster.queue_wire import What, encode_call
from broker.protocol.errors import ChannelError
from queues.bell import Clock, Timer
from queues.statistics import QueueStatistics

CALL_WAIT_MS: Final = 10_000  # for a leader and its answer: longer than any election takes
NO_LEADER: Final = 506
MOVED: Final = ChannelError(NO_LEADER, "this node leads the queue now")  # ask it

Then: TypeAlias = Callable[[bytes | ChannelError], None]

_COUNTS = struct.Struct(">QQ")
_COUNT = struct.Struct(">Q")
_LEASE = struct.Struct(">QQ")
_STATISTICS = struct.Struct(">8Q")
_STATISTICS_BEFORE = struct.Struct(">7Q")  # without the last one
# As arguments: whoever asks knows all of them. Older nodes ask with nothing.
ALL_STATISTICS: Final = b"\x08"
_ERROR = struct.Struct(">H")


class _Call:
    __slots__ = ("arguments", "then", "timer", "what")

    def __init__(self, what: What, arguments: bytes, then: Then, timer: Timer) -> None:
        self.what = what
        self.arguments = arguments
        self.then = then
        self.timer = timer


class Calls:
    """Those of one front that are not answered."""

    __slots__ = ("_clock", "_name", "_next", "_open")

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._open: dict[int, _Call] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._open)

    def add(self, what: What, arguments: bytes, then: Then) -> int:
        """`then` is called once, in time, with the answer or why there is none."""
        number = self._next
        self._next = number + 1 & 0xFFFFFFFF

        def give_up() -> None:
            self.answer(number, self.no_leader())

        timer = self._clock.call_at(self._clock.now_ms() + CALL_WAIT_MS, give_up)
        self._open[number] = _Call(what, arguments, then, timer)
        return number

    def no_leader(self) -> ChannelError:
        return ChannelError(NO_LEADER, f"queue '{self._name}' has no leader that answers")

    def encode(self, number: int) -> bytes:
        call = self._open[number]
        return encode_call(number, call.what) + call.arguments

    def open(self) -> Iterator[tuple[int, What, bytes]]:
        """All that wait, from the oldest on."""
        yield from [(number, call.what, call.arguments) for number, call in self._open.items()]

    def answer(self, number: int, value: bytes | ChannelError) -> bool:
        """Whether anybody still waited for it."""
        call = self._open.pop(number, None)
        if call is None:
            return False
        call.timer.cancel()
        call.then(value)
        return True

    def fail_all(self, error: ChannelError) -> None:
        for number in list(self._open):
            self.answer(number, error)


# Arguments and values


def pack_counts(ready: int, consumers: int) -> bytes:
    return _COUNTS.pack(ready, consumers)


def unpack_counts(value: bytes) -> tuple[int, int]:
    ready, consumers = _COUNTS.unpack(value)
    return ready, consumers


def pack_count(count: int) -> bytes:
    return _COUNT.pack(count)


def unpack_count(value: bytes) -> int:
    return int(_COUNT.unpack_from(value)[0])


def pack_check(*, if_unused: bool, if_empty: bool) -> bytes:
    return bytes((if_unused, if_empty))


def pack_lease(sequence: int, lease_ms: int | None) -> bytes:
    return _LEASE.pack(sequence, lease_ms or 0)


def unpack_lease(arguments: bytes) -> tuple[int, int | None]:
    sequence, lease_ms = _LEASE.unpack(arguments)
    return sequence, lease_ms or None


def pack_statistics(statistics: QueueStatistics, arguments: bytes) -> bytes:
    values = astuple(statistics)
    if arguments == ALL_STATISTICS:
        return _STATISTICS.pack(*values)
    return _STATISTICS_BEFORE.pack(*values[:-1])


def unpack_statistics(value: bytes) -> QueueStatistics:
    layout = _STATISTICS if len(value) == _STATISTICS.size else _STATISTICS_BEFORE
    return QueueStatistics(*layout.unpack(value))


def pack_error(error: ChannelError) -> bytes:
    return _ERROR.pack(error.code) + error.text.encode("utf-8", "surrogateescape")


def unpack_error(value: bytes) -> ChannelError:
    (code,) = _ERROR.unpack_from(value)
    return ChannelError(code, value[_ERROR.size :].decode("utf-8", "surrogateescape"))
