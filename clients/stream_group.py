"""A member of a consumer group: reads the partitions it is assigned, and commits how far it got.

Assignments change while `poll` is called, and only then: partitions that are to move are handed to
`on_revoked`, where the last of their offsets may still be committed, and are released behind it. A
member that was silent for too long has lost its partitions (`on_lost`) and joins anew.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import OffsetOutOfRangeError
from clients.stream_address import Address
from clients.stream_connection import StreamConnection
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError
from clients.stream_group_core import (
    HEARTBEAT_S,
    GroupCore,
    Listeners,
    Partitions,
    Polled,
    ignore,
)
from clients.stream_plans import Alone, Ask, Plan, Step, run
from clients.stream_reader import FETCH_BYTES

T = TypeVar("T")
Told = Callable[[Partitions], None]


class GroupConsumer:
    """For one thread; a second one of its own keeps the membership alive meanwhile. The end of a
    `with` block leaves the group.

    With `heartbeat_s` None there is no such thread, and `poll` must be called often enough.
    """

    def __init__(
        self,
        address: Address,
        group: str,
        streams: Iterable[str],
        *,
        label: str = "consumer",
        instance: str = "",
        start: Literal["first", "next"] = "first",
        heartbeat_s: float | None = HEARTBEAT_S,
        fetch_bytes: int = FETCH_BYTES,
        on_assigned: Told = ignore,
        on_revoked: Told = ignore,
        on_lost: Told = ignore,
    ) -> None:
        """`start`: where to read a partition from whose offset was never committed."""
        self.core = GroupCore(
            group,
            streams,
            Listeners(on_assigned, on_revoked, on_lost),
            label=label,
            instance=instance,
            start=start,
            fetch_bytes=fetch_bytes,
        )
        self._data = StreamConnection(address, name=f"{group} {label}")
        self._asked: dict[int, tuple[wire.Partition, int]] = {}  # and from which offset on
        self._control = StreamConnection(address, name=f"{group} {label} heartbeat")
        self._lock = threading.Lock()  # of that
        self._by_poll = heartbeat_s is None
        self._stopped = threading.Event()
        self.run(self.core.join())
        if heartbeat_s is not None:
            threading.Thread(target=self._beat_for_ever, args=(heartbeat_s,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def group(self) -> str:
        return self.core.group

    @property
    def positions(self) -> dict[wire.Partition, int]:
        """Where to go on, by assigned partition: behind what was polled."""
        return self.core.positions

    @property
    def assigned(self) -> Partitions:
        return self.core.assigned

    def poll(self, timeout_s: float = 1.0) -> Polled | None:
        """What came first from one of the partitions; None if nothing did in that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._by_poll:
                self.run(self.core.heartbeat())
            if self.core.has_news:
                self.run(self.core.follow())
            left_ms = max(0, int((deadline - time.monotonic()) * 1000))
            polled = self._read_some(left_ms)
            if polled is not None or left_ms == 0:
                return polled

    def commit(self, positions: Mapping[wire.Partition, int] | None = None) -> None:
        """These offsets; without any, of everything that was polled."""
        self.run(self.core.commit(positions))

    def transaction_part(self) -> wire.GroupPart:
        """What was polled, to be committed with a transaction instead."""
        return self.core.part()

    def rewind(self) -> None:
        """Read again whatever was polled and not committed, in a transaction that failed say."""
        self.run(self.core.rewind())

    def close(self) -> None:
        """Leave the group; nothing is committed by itself."""
        self._stopped.set()
        self.run(self.core.leave())
        with self._lock:
            self._control.close()
        self._data.close()

    # Plans

    def run(self, plan: Plan[T]) -> T:
        """On the connection that the heartbeats use, between them."""
        return run(plan, self._carry_out)

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Alone):
            with self._lock:
                return self._control.run(step.plan)
        if isinstance(step, Ask):
            with self._lock:
                return self._control.carry_out(step)
        return self._control.carry_out(step)

    def _beat_for_ever(self, interval_s: float) -> None:
        while not self._stopped.wait(interval_s):
            self.run(self.core.beat())

    # Records

    def _read_some(self, wait_ms: int) -> Polled | None:
        """The first answer to a fetch; each partition has one under way."""
        try:
            self._ask(wait_ms)
            if not self._asked:
                time.sleep(min(wait_ms, 50) / 1000)  # nothing is assigned
                return None
            answer = self._data.receive_any(self._asked)
        except ConnectionLostError:
            self._asked.clear()
            return None
        partition, asked = self._asked.pop(answer.correlation)
        try:
            fetched = self._data.decode(answer, Fetched)
        except OffsetOutOfRangeError:
            self.run(self.core.overtaken(partition))
            return None
        polled = self.core.came(partition, asked, fetched)
        if polled is not None:
            self.core.given(partition, polled.next_offset)
        return polled

    def _ask(self, wait_ms: int) -> None:
        under_way = dict(self._asked.values())  # the last of each
        for partition, request in self.core.requests(under_way, wait_ms):
            self._asked[self._data.send(request)] = (partition, request.start)
