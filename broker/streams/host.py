"""The partitions of a node's streams: on their logs, recovered, looked after, brought to an end."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final, TypeVar

import trio

from broker import logs
from broker.hosted_log import HostedLog
from broker.internal_errors import CALLBACK, TIMER
from broker.log_host import LogHost
from broker.off_loop import OffLoop
from broker.protocol.stream_errors import StreamError
from broker.streams.replication import Led, Replication
from broker.timers import Timers
from queues.live_log import Log
from queues.storage.directories import Directories
from queues.stream.forwarding import answer_lost, handle_forwarded
from queues.stream.outgoing import NODE_BYTES_MAX as OUTGOING_BYTES_MAX
from queues.stream.outgoing import Outgoing
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.staged_rows import NODE_BYTES_MAX
from queues.stream.stream import Appender, Stream
from queues.stream.subscription import PartitionEnd
from queues.stream.tail import TailBudget

TICK_MS: Final = 1000
# Partitions that have nothing new are looked at in this many ticks, a share in each.
ROUND_TICKS: Final = 60

_log = logs.get("streams")

T = TypeVar("T")


def partition_uid(stream: bytes, number: int) -> bytes:
    """The name of a partition's log, and of its directory."""
    return blake2b(stream + number.to_bytes(4, "big"), digest_size=16, person=b"partition").digest()


class Streams:
    """For the loop's thread."""

    def __init__(
        self,
        host: LogHost,
        timers: Timers,
        flush: Callable[[], None],
        directories: Directories,
        off_loop: OffLoop,
    ) -> None:
        self._host = host
        self._timers = timers
        self._flush = flush
        self._directories = directories
        self._off_loop = off_loop
        self._budget = TailBudget()
        self._staged_budget = TailBudget(NODE_BYTES_MAX)
        self._all: dict[StreamPartition, None] = {}
        self._recovered: list[StreamPartition] = []
        self._busy: dict[StreamPartition, None] = {}  # to be looked at with every tick
        self._round: list[StreamPartition] = []  # of the others, those still to come
        self.replication: Replication | None = None  # set before there are streams
        self._led: dict[bytes, Led] = {}
        self._outgoing_budget = TailBudget(OUTGOING_BYTES_MAX)
        self._wanting: dict[Outgoing, None] = {}  # to be flushed at the end of the turn
        self._jobs = 0
        self._idle = trio.Event()
        self._nursery: trio.Nursery | None = None

    # Making and recovering

    def make(self, stream: Stream) -> None:
        """A stream that was just declared: its partitions are empty."""
        if self.replication is not None:
            self._join(stream, self.replication)
            return
        for partition, _ in self._attach(stream):
            partition.recover(None, [])
            partition.start()

    def recover(self, stream: Stream, *, lost_logs: bool) -> None:
        """Bring a stream back as log and segments have it, or damaged."""
        if self.replication is not None:
            self._join(stream, self.replication)
            return
        for partition, log in self._attach(stream):
            reason = self._host.damage_of(log)
            if log.gid is None and lost_logs:
                reason = "logs are lost, and its own may be one of them"
            if reason is None:
                reason = self._recover(partition, log)
            if reason is not None:
                number = stream.partitions.index(partition)
                _log.error("damaged", stream=stream.name, partition=number, reason=reason)
                stream.damage(f"partition {number}: {reason}")

    def _attach(self, stream: Stream) -> list[tuple[StreamPartition, HostedLog]]:
        made: list[HostedLog] = []

        def make(number: int, end: PartitionEnd) -> StreamPartition:
            uid = partition_uid(stream.uid, number)
            log = self._host.open(uid)
            made.append(log)
            log.machine = partition = self._partition(log, end, uid, stream, replicated=False)
            return partition

        return list(zip(stream.keep_in(self, make), made, strict=True))

    def _partition(
        self, log: Log, end: PartitionEnd, uid: bytes, stream: Stream, *, replicated: bool
    ) -> StreamPartition:
        partition = StreamPartition(
            log,
            end,
            self._directories.disk(uid.hex()),
            stream.options.storage,
            self._budget,
            self._timers.now_ms,
            self.run_off_loop,
            IdempotentProducers(),
            self._staged_budget,
            replicated=replicated,
        )
        self._all[partition] = None
        return partition

    def _join(self, stream: Stream, replication: Replication) -> None:
        """Its partitions on logs that other nodes have too: recovered by what those say."""
        outgoing: list[Outgoing] = []

        def make(number: int, end: PartitionEnd) -> StreamPartition:
            uid = partition_uid(stream.uid, number)
            made: list[StreamPartition] = []

            def on_log(log: Log) -> StreamPartition:
                partition = self._partition(log, end, uid, stream, replicated=True)
                partition.fetch = partial(replication.entries, log)
                made.append(partition)
                return partition

            replication.join(stream, number, uid, on_log)
            (partition,) = made
            if partition.unsound is not None:
                reason = partition.unsound
                _log.error("damaged", stream=stream.name, partition=number, reason=reason)
            elif not partition.is_open:
                partition.recover(None, [])
            way = Outgoing(
                uid,
                replication.node,
                replication.boot,
                replication,
                self._timers.now_ms,
                self._want,
                self._relieved,
                self._outgoing_budget,
            )
            way.tells_early = lambda: stream.options.storage.leader_acks
            outgoing.append(way)
            self._led[uid] = Led(replication, uid, partition, way)
            return partition

        for partition in stream.keep_in(self, make):
            if self._nursery is None:
                self._recovered.append(partition)
            else:
                partition.start()
        stream.publish_through(outgoing)

    def flush(self) -> None:
        """At the end of a turn: what was published to partitions that lead elsewhere goes there."""
        wanting, self._wanting = self._wanting, {}
        for outgoing in wanting:
            outgoing.flush()

    def _want(self, outgoing: Outgoing) -> None:
        self._wanting[outgoing] = None

    def handle_forwarded(self, uid: bytes, body: bytes, answer: Callable[[bytes], None]) -> None:
        """What another node has for a partition, which should lead here."""
        found = self._led.get(uid)
        if found is None:
            answer_lost(body, answer)
        else:
            handle_forwarded(found.partition, body, answer)

    def has(self, uid: bytes) -> bool:
        """Whether this names the log of a partition that other nodes have too."""
        return uid in self._led

    def waiting(self) -> list[bytes]:
        """The logs for whose leaders something waits."""
        return [uid for uid, led in self._led.items() if led.outgoing.size_bytes]

    def unsound(self) -> list[bytes]:
        """The logs of partitions that need the records of another replica."""
        return [uid for uid, led in self._led.items() if led.partition.unsound is not None]

    def refuse(self, uid: bytes) -> None:
        """There will be no leader for long: nack what waits for it."""
        if uid in self._led:
            self._led[uid].outgoing.refuse()

    def _relieved(self) -> None:
        self._host.crowded = {one for one in self._host.crowded if one.congested}
        if not self._host.overloaded:
            self._host.relieve()

    def _recover(self, partition: StreamPartition, log: HostedLog) -> str | None:
        """What is wrong with it, if anything is."""
        try:
            kept = partition.recover(
                self._host.checkpoint_of(log),
                self._host.replay(log),
                partial(self._host.entries, log),
            )
        except (StreamError, FileNotFoundError) as error:
            return str(error)
        self._host.retain(log, kept)
        self._recovered.append(partition)
        return None

    def remove_orphans(self, streams: list[Stream]) -> None:
        """Directories of streams that were deleted, and that a crash left behind."""
        known = {
            partition_uid(stream.uid, number).hex()
            for stream in streams
            for number in range(stream.options.partitions)
        }
        for name in self._directories.names():
            if name not in known:
                _log.info("orphan_removed", directory=name)
                self._directories.disk(name).remove()

    # Looking after them

    def start(self, nursery: trio.Nursery) -> None:
        """Begin, once logs can be written."""
        self._nursery = nursery
        for partition in self._recovered:
            partition.start()
            self._busy[partition] = None
        self._recovered.clear()
        self._timers.call_at(self._timers.now_ms() + TICK_MS, self._tick)

    def touched(self, partition: StreamPartition) -> None:
        self._busy[partition] = None

    def crowded(self, appender: Appender) -> None:
        self._host.crowded.add(appender)

    def forget(self, partition: StreamPartition) -> None:
        for uid, led in list(self._led.items()):
            if led.partition is partition:
                del self._led[uid]
                led.close()
        self._all.pop(partition, None)
        self._busy.pop(partition, None)

    def _tick(self) -> None:
        now_ms = self._timers.now_ms()
        self._timers.call_at(now_ms + TICK_MS, self._tick)
        self._busy = {one: None for one in self._busy if self._look_after(one, now_ms)}
        for led in list(self._led.values()):
            with self._timers.errors.guard(TIMER, stream=led.uid.hex()):
                led.outgoing.retry()
        if not self._round:
            self._round = list(self._all)
        for _ in range(min(len(self._round), -(-len(self._all) // ROUND_TICKS))):
            partition = self._round.pop()
            if partition not in self._all or partition in self._busy:
                continue
            if self._look_after(partition, now_ms):
                self._busy[partition] = None

    def _look_after(self, partition: StreamPartition, now_ms: int) -> bool:
        """Whether there is more to do soon. One that fails is looked at again in its round."""
        try:
            return partition.tick(now_ms)
        except Exception as error:  # noqa: BLE001 - the others are to be looked after as well
            self._timers.errors.note(TIMER, error, what="partition")
            return False

    # Off the loop

    def run_off_loop(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Work in a thread, then hand over the result; a failing disk ends the node."""
        assert self._nursery is not None, "partitions work once the node runs"
        self._jobs += 1
        self._nursery.start_soon(partial(self._run, work, then))

    async def _run(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            result = await self._off_loop(work)
        except OSError as error:
            self._host.fail(error)
        except Exception as error:  # noqa: BLE001 - one partition's bug must not end the node
            self._timers.errors.note(CALLBACK, error)
        else:
            with self._timers.errors.guard(CALLBACK):
                then(result)
        finally:
            self._jobs -= 1
            if not self._jobs:
                self._idle.set()
        self._flush()

    async def finish(self) -> None:
        """Wait until nobody is at the files any more."""
        while self._jobs:
            self._idle = trio.Event()
            await self._idle.wait()
