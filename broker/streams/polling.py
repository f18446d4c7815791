"""A fetch: answered at once, or when there is enough, or when its time is over."""

from typing import TYPE_CHECKING, Protocol

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused
from broker.streams.service import Caller, Found, StreamService
from broker.timers import Timer, Timers

if TYPE_CHECKING:
    from collections.abc import Callable


class Reader(Protocol):
    """Who is to have the answer."""

    def has_room(self, poll: "Poll") -> bool:
        """If not, the poll is to `look` again when there is room."""
        ...

    def found(self, poll: "Poll", found: Found | Refused) -> None: ...


class Poll:
    """Looks, and as long as there is too little, waits for more to be written."""

    def __init__(
        self,
        service: StreamService,
        caller: Caller,
        request: wire.Fetch,
        reader: Reader,
        timers: Timers,
    ) -> None:
        self._service = service
        self._caller = caller
        self._request = request
        self._reader = reader
        self._timers = timers
        self._timer: Timer | None = None
        self._time_is_over = request.wait_ms == 0
        self._looking = False
        self._unwatch: Callable[[], None] | None = None
        self.over = False

    def look(self) -> None:
        if not self._looking and not self.over:
            self._looking = True
            self._service.fetch(self._caller, self._request, self._seen)

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self.over = True
        self._stop_waiting()

    def _seen(self, found: Found | Refused) -> None:
        self._looking = False
        if isinstance(found, Refused):
            if not self.over:
                self._answer(found)
        elif self.over:
            found.close()
        elif not self._time_is_over and not self._enough(found):
            found.close()
            self._wait(found.head.next_offset)
        elif found.size_bytes and not self._reader.has_room(self):
            found.close()
        else:
            self._answer(found)

    def _enough(self, found: Found) -> bool:
        request = self._request
        return found.size_bytes >= request.min_bytes or found.head.resume_offset >= request.end

    def _answer(self, found: Found | Refused) -> None:
        self.cancel()
        self._reader.found(self, found)

    def _wait(self, next_offset: int) -> None:
        if self._timer is None:
            until = self._timers.now_ms() + self._request.wait_ms
            self._timer = self._timers.call_at(until, self._time_up)
        partition = wire.Partition(self._request.stream, self._request.partition)
        woken = False

        def wake() -> None:
            nonlocal woken
            woken = True
            self._unwatch = None
            self.look()

        unwatch = self._service.watch(self._caller, partition, next_offset, wake)
        if not woken:
            self._unwatch = unwatch

    def _time_up(self) -> None:
        self._timer = None
        self._time_is_over = True
        if self._unwatch is not None:
            self._stop_waiting()
            self.look()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unwatch is not None:
            unwatch, self._unwatch = self._unwatch, None
            unwatch()
