"""Memory is short: messages of queues in memory go to temporary files in the data directory."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from broker import logs
from broker.internal_errors import CALLBACK, InternalErrors
from queues.storage.disk import is_no_room
from queues.storage.errors import OutOfSpaceError
from queues.storage.spill_files import SpillFiles

if TYPE_CHECKING:
    from broker.off_loop import OffLoop
    from queues.queue import Queue

# Writes under way: enough for a loop that comes round a few times in a second, and few, as each
# holds a chunk twice.
WRITES_MAX: Final = 16

_log = logs.get("spill")


class Spilling:
    """A `queues.spill.Spill` on threads. For the loop."""

    def __init__(
        self,
        files: SpillFiles,
        off_loop: "OffLoop",
        flush: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        errors: InternalErrors,
    ) -> None:
        self._errors = errors
        self._files = files
        self._off_loop = off_loop
        self._flush = flush  # at the end of a turn
        self._on_failure = on_failure
        self._short = False
        self._no_room = False
        self._writing = 0
        self._turns: deque[Callable[[], None]] = deque()
        self._nursery: trio.Nursery | None = None

    @property
    def live_bytes(self) -> int:
        return self._files.live_bytes

    @property
    def wanted(self) -> bool:
        return self._short and not self._no_room

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def look(self, queues: "Iterable[Queue]", *, short: bool, disk_full: bool) -> None:
        """How things are now; to be told again and again while memory is short."""
        if short and not self._short:
            _log.info("paging_out")
        self._short = short
        self._no_room = disk_full
        if self.wanted:
            for queue in queues:
                queue.page_out(self)
            self._flush()

    def when_free(self, turn: Callable[[], None]) -> None:
        self._turns.append(turn)
        self._take_turns()

    def _take_turns(self) -> None:
        while self._turns and self._writing < WRITES_MAX:
            self._turns.popleft()()

    def write(self, data: bytes, then: Callable[[int | None], None]) -> None:
        assert self._nursery is not None, "messages are paged out once the node runs"
        self._writing += 1
        self._nursery.start_soon(self._guarded, partial(self._write, data, then))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """What goes wrong with a queue's messages is not the business of other queues."""
        with self._errors.guard(CALLBACK):
            await work()

    async def _write(self, data: bytes, then: Callable[[int | None], None]) -> None:
        place = None
        try:
            place = self._files.place(len(data))
            file, offset = self._files.locate(place)
            await self._off_loop(partial(file.pwritev, [data], offset))
        except (OSError, OutOfSpaceError) as error:
            self._no_room = True  # until the next look
            if place is not None:
                self._files.free(place, len(data))
                place = None
            if isinstance(error, OSError) and not is_no_room(error):
                self._on_failure(error)
        self._writing -= 1
        then(place)
        self._take_turns()

    def read(self, place: int, length: int, then: Callable[[bytes], None]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._guarded, partial(self._read, place, length, then))

    async def _read(self, place: int, length: int, then: Callable[[bytes], None]) -> None:
        file, offset = self._files.locate(place)
        try:
            data = await self._off_loop(partial(file.pread, length, offset))
        except OSError as error:
            self._on_failure(error)
            return
        assert len(data) == length
        then(data)
        self._flush()

    def free(self, place: int, length: int) -> None:
        self._files.free(place, length)
