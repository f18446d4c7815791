"""Messages of a queue that died, and stay in it until their dead letters are safe elsewhere.

They go in the order of their deaths. What is refused, because a target has no majority, is damaged
or lives on a node that is down, is sent again after a pause, together with all that died meanwhile.
When as many wait as may, the queue neither delivers, expires nor drops anything: no more can die.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from queues.bell import Bell, Clock
from queues.message import Message

if TYPE_CHECKING:
    from queues.queue import Queue

# So many messages of a queue are on their way to its dead letters at once: enough that a commit of
# the target pays, little beside what the node may keep in memory.
DEAD_MAX: Final = 4096
DEAD_BYTES_MAX: Final = 64 * 1024 * 1024  # of bodies
BATCH_MAX: Final = 1024  # messages in one burial
# Between two tries. The first is short, for a leader that changes; the last spares whoever is down.
PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 30_000


class Burial:
    """Messages that died together, on their way to the dead letters."""

    __slots__ = ("died_ms", "messages", "number", "origin", "reason", "size_bytes", "taken")

    def __init__(
        self, messages: list[Message], reason: str, died_ms: int, origin: bytes | None = None
    ) -> None:
        self.messages = messages
        self.reason = reason
        self.died_ms = died_ms
        # The uid of the queue, where a message that died may come back after a crash, under the
        # same sequence, and die once more: that makes one dead letter.
        self.origin = origin
        self.number = 0
        self.size_bytes = sum([message.body_bytes for message in messages])
        # Sequence → uids of the queues that have the letter, of messages that others refused.
        self.taken: dict[int, set[bytes]] = {}

    def part(self, messages: list[Message]) -> "Burial":
        """These of them are still to be buried."""
        part = Burial(messages, self.reason, self.died_ms, self.origin)
        part.number = self.number
        part.taken = self.taken
        return part


Then: TypeAlias = Callable[[list[Message]], None]


class Grave(Protocol):
    """Where messages are buried."""

    def dead_letter(self, queue: "Queue", burial: Burial, then: Then) -> None:
        """`then` is called once, with the messages that could not be taken."""
        ...


class Burials:
    """Of one queue."""

    __slots__ = (
        "_bell",
        "_clock",
        "_life",
        "_line",
        "_next",
        "_on_room",
        "_on_safe",
        "_pause_ms",
        "_pausing",
        "_purges",
        "_send",
        "_sending",
        "_size_bytes",
        "_under_way",
        "count",
        "stalled",
    )

    def __init__(
        self,
        clock: Clock,
        send: Callable[[Burial, Then], None],
        on_safe: Callable[[list[Message]], None],
        on_room: Callable[[], None],
    ) -> None:
        """`on_safe` is told of messages that are not needed any more.

        `on_room` is called when more may die, after `stalled` said that no more may.
        """
        self._clock = clock
        self._send = send
        self._on_safe = on_safe
        self._on_room = on_room
        self._line: deque[Burial] = deque()  # in order of death, once a pause is over
        self._under_way = 0  # messages
        self._size_bytes = 0  # of all
        self._next = 0
        self._pause_ms = 0
        self._pausing = False
        self._sending = False
        self._life = 0  # answers from before it was cleared are not wanted
        self._purges = 0  # what was under way at a purge is not tried again
        self._bell = Bell(clock, self.retry)
        self.count = 0  # messages that wait or are under way
        self.stalled = False

    @property
    def room(self) -> int:
        """How many more messages may die now."""
        return 0 if self.stalled else max(1, DEAD_MAX - self.count)

    def add(self, messages: list[Message], reason: str, origin: bytes | None) -> None:
        now = self._clock.now_ms()
        for start in range(0, len(messages), BATCH_MAX):
            burial = Burial(messages[start : start + BATCH_MAX], reason, now, origin)
            burial.number = self._next
            self._next += 1
            self._line.append(burial)
            self._size_bytes += burial.size_bytes
        self.count += len(messages)
        self._send_all()
        self.stalled = self._is_full

    @property
    def _is_full(self) -> bool:
        return self.count >= DEAD_MAX or self._size_bytes >= DEAD_BYTES_MAX

    def retry(self) -> None:
        """The pause is over; or there is reason to think that it need not be as long."""
        self._bell.stop()
        self._pausing = False
        self._line = deque(sorted(self._line, key=lambda burial: burial.number))
        self._send_all()

    def _send_all(self) -> None:
        if self._sending:
            return  # an answer came at once: whoever sends goes on
        self._sending = True
        try:
            while self._line and not self._pausing and self._under_way < DEAD_MAX:
                burial = self._line.popleft()
                self._under_way += len(burial.messages)
                self._send(burial, partial(self._answered, burial, self._life, self._purges))
        finally:
            self._sending = False

    def _answered(self, burial: Burial, life: int, purges: int, refused: list[Message]) -> None:
        if life != self._life:
            return
        self._under_way -= len(burial.messages)
        safe = burial.messages
        if not refused:
            self._pause_ms = 0
        elif purges == self._purges:
            again = set(map(id, refused))
            safe = [message for message in burial.messages if id(message) not in again]
            self._line.append(burial.part(refused))
            self._pause()
        self._gone(safe)
        if safe:
            self._on_safe(safe)
        self._send_all()
        self._resume()

    def _gone(self, messages: list[Message]) -> None:
        self.count -= len(messages)
        self._size_bytes -= sum([message.body_bytes for message in messages])

    def _pause(self) -> None:
        if not self._pausing:
            self._pausing = True
            self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
            self._bell.ring_at(self._clock.now_ms() + self._pause_ms)

    def _resume(self) -> None:
        if self.stalled and not self._is_full:
            self.stalled = False
            self._on_room()

    def purge(self) -> list[Message]:
        """Those that wait, which they do no more; what is under way gets no other try."""
        purged = [message for burial in self._line for message in burial.messages]
        self._line.clear()
        self._purges += 1
        self._gone(purged)
        self.stalled = self._is_full
        return purged

    def clear(self) -> None:
        """The queue is over, here at least: nothing is sent or heard any more."""
        self._line.clear()
        self._life += 1
        self._under_way = self._size_bytes = self.count = 0
        self._pausing = self.stalled = False
        self._bell.stop()
