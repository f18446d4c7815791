"""One life of a node on a simulated disk, from its start to a stop or a crash."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import trio
import trio.testing

from broker.config import Config
from broker.durability import Durability
from broker.journal import DEFINITIONS_UID
from broker.node import Node
from broker.protocol.errors import ChannelError
from broker.startup import DiskFailedError
from broker.vhost import PREDECLARED, VHost
from queues.away import Away
from queues.commands import ENQUEUE, decode_messages, split_commands
from queues.consumers import Consumer
from queues.durable import DurableStore
from queues.message import Message
from queues.queue import Queue
from queues.storage.errors import CorruptRecordError
from queues.storage.frames import FILE_HEADER_BYTES
from queues.storage.log_store import LogStore
from queues.storage.manifest import MANIFEST_NAMES
from queues.storage.options import StoreOptions
from queues.storage.reclaim import Reclaimer
from tests.simulation.clients import Client, WatchedReceipt, make_message
from tests.simulation.ledger import Book, Found, Ledger, check, number_of
from tests.support.internal_errors import let_out
from tests.support.simdisk import SimDisk

EPOCH_MS = 1_700_000_000_000.0
T = TypeVar("T")


class Life:
    """Node, storage and clients. Once `over`, nobody believes what they still hear of it."""

    def __init__(
        self,
        disk: SimDisk,
        ledger: Ledger,
        random: Random,
        options: StoreOptions,
        *,
        hot_bytes: int,
        read_delays_s: list[float],
        flipped: bool,
    ) -> None:
        self.disk = disk
        self.flipped = flipped  # a bit of the disk is not as it was written
        self.ledger = ledger
        self.over = False
        self.dropped_files = False  # just now, while a turn was under way
        self.failure: BaseException | None = None
        self._random = random
        self._read_delays_s = read_delays_s
        self.node = Node(Config(data_dir=Path("simulated")))
        let_out(self.node.errors)
        self.node.timers._epoch_ms = EPOCH_MS
        self.durability = Durability(self.node, disk=disk, threaded=False, options=options)
        self.durability.host.off_loop = self._read_later
        self.durability._budget.limit = hot_bytes
        self.clients: list[Client] = []
        self.receipts: list[WatchedReceipt] = []
        self.reclaimer: Reclaimer

    async def _read_later(self, work: Callable[[], T]) -> T:
        await trio.sleep(self._random.choice(self._read_delays_s))
        return work()

    def _reclaim_beside(self, store: LogStore) -> None:
        """The reclaimer has a thread of its own: it may run in the midst of a turn."""
        release = store.release

        def release_and_reclaim(gid: int, ranges: Iterable[tuple[int, int]]) -> None:
            release(gid, ranges)
            if self.disk.fault is None and not self.over and self._random.random() < 0.4:
                files = len(self.disk.list())
                self.reclaim(self._random.choice([1, 30]))
                self.store.flush()
                self.reclaim(30)
                self.dropped_files |= len(self.disk.list()) < files

        store.release = release_and_reclaim  # type: ignore[method-assign]

    def reclaim(self, steps: int) -> None:
        for _ in range(steps):
            if not self.reclaimer.step():
                break

    # Beginning and end

    async def start(self, nursery: trio.Nursery, *, crashed: bool) -> None:
        """Recover, compare with the ledger, run."""
        self.durability.open()
        self.vhost: VHost = self.node.vhosts["/"]
        self.store = self.durability.host.store
        self.reclaimer = Reclaimer(self.store)
        self._reclaim_beside(self.store)
        self._check_recovery(crashed=crashed)
        nursery.start_soon(self.node.timers.run, self.node.flush)
        started = trio.Event()
        nursery.start_soon(self._serve, started)
        await self.pump_until(started)

    async def _serve(self, started: trio.Event) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.durability.run)
                started.set()
        except* DiskFailedError as error:
            self.failure = error

    async def stop(self, nursery: trio.Nursery) -> None:
        """As the server does it."""
        done = trio.Event()

        async def close() -> None:
            await self.durability.close()
            done.set()

        nursery.start_soon(close)
        await self.pump_until(done)

    def end(self) -> None:
        """What was reported and not heard yet is never heard."""
        self.over = True
        host = self.durability.host
        host.failure = host.failure or RuntimeError("this life is over")
        host._submits.clear()

    async def pump_until(self, event: trio.Event) -> None:
        for _ in range(1000):
            if event.is_set() or self.failure is not None:
                return
            self.store.flush()
            await trio.testing.wait_all_tasks_blocked()
        check(not "fine", "nothing happens any more")

    # What recovery found

    def _check_recovery(self, *, crashed: bool) -> None:
        self.ledger.definitions.recovered(self.definitions())
        present = {queue.uid for queue in self.vhost.queues.values()}
        for uid in self.ledger.books.keys() - present:
            self.ledger.books[uid].deleted = True
        for queue in self.vhost.queues.values():
            book = self.ledger.book(queue)
            if queue.damaged is None:
                try:
                    book.recovered(self._contents(queue), crashed=crashed)
                except CorruptRecordError as error:
                    queue.damage(str(error))
        self.note_damage()

    def note_damage(self) -> None:
        for queue in self.vhost.queues.values():
            if queue.damaged is not None:
                check(self.flipped, f"queue {queue.name}: damaged by nobody:", queue.damaged)
                self.ledger.book(queue).damaged = True

    def definitions(self) -> dict[tuple[str, ...], bytes]:
        found: dict[tuple[str, ...], bytes] = {}
        given = {"", "amq.rabbitmq.trace", *(name for name, _ in PREDECLARED)}
        for queue in self.vhost.queues.values():
            found["queue", queue.name] = queue.uid
        for exchange in self.vhost.exchanges.values():
            if exchange.name not in given:
                found["exchange", exchange.name] = exchange.type.encode()
            if exchange.name:
                for binding in exchange.bindings():
                    destination: Any = binding.destination
                    found["binding", exchange.name, destination.name, binding.key] = b""
        return found

    def _contents(self, queue: Queue) -> list[Found]:
        """All that is alive in a queue's log."""
        store: Any = queue._store
        live = store._state.live
        entries = list(live.entries_from(0))
        if not entries:
            return []
        indexes = [entry.index for entry in entries]
        payloads = self.store.read_indexes(store._log.gid, indexes, bytes_max=1 << 40)
        lost = sorted(set(indexes) - {stored.index for stored in payloads})
        check(not lost, f"queue {queue.name}: entries", lost, "are not in its log")
        found = []
        for entry, stored in zip(entries, payloads, strict=True):
            messages = [
                message
                for kind, start, _ in split_commands(stored.payload)
                if kind == ENQUEUE
                for message in decode_messages(stored.payload, start)
            ]
            for sub, message in enumerate(messages):
                sequence = entry.first + sub
                if live.is_live(sequence):
                    count, due = live.count_of(sequence), live.due.get(sequence)
                    found.append(Found(sequence, number_of(message), count, due))
        return found

    # What is seen while it lives

    def delivered(
        self, queue: Queue, messages: list[Message], *, alone: bool, consumer: Consumer
    ) -> None:
        book = self.ledger.book(queue)
        grouped = queue.options.message_groups
        for one in [[m] for m in messages] if grouped else [messages]:
            if grouped:
                book.check_group(one[0])
            book.delivered(one, alone=alone, no_ack=consumer.no_ack, now=self.now_ms())

    def book_of(self, queue: Any) -> Book | None:
        """None for what happens when nobody believes it any more."""
        return None if self.over else self.ledger.books.get(queue.uid)

    def now_ms(self) -> int:
        return self.node.timers.now_ms()

    def is_on_platter(self, text: bytes) -> bool:
        return any(text in inode.durable for inode in self.disk._durable_names.values())

    def check_refusals(self) -> None:
        """A damaged queue takes nothing and gives nothing; it says so."""
        for queue in list(self.vhost.queues.values()):
            if queue.damaged is not None:
                with pytest.raises(ChannelError, match="damaged"):
                    self.vhost.queue(queue.name, user_of=self)
                refused: list[Message] = []
                receipt = SimpleNamespace(stored=refused.extend)
                queue.publish([make_message(0, "", queue.name, 1)], receipt)
                check(refused, f"queue {queue.name}: takes messages though damaged")
                check(not queue.ready, f"queue {queue.name}: offers messages though damaged")

    def check_disk_use(self, dead_entries_max: int) -> None:
        """Once everything is settled, little is left, of logs that are in use."""
        for _ in range(200):
            self.reclaim(100)
            self.store.flush()  # it waits for what it writes itself
        used = {queue.uid for queue in self.vhost.queues.values()} | {DEFINITIONS_UID}
        for view in self.store.groups():
            check(view.uuid in used, "a log was left behind by a queue that is gone")
            count = len(self.store.entries(view.gid))
            settled = view.uuid == DEFINITIONS_UID or count <= dead_entries_max
            check(settled, "a log keeps", count, "entries for an empty queue")
        found, options = self.store.statistics(), self.store.options
        files = found.log_files + found.segments
        allowed = options.slack_files + options.spare_files + 4
        most = 2 * found.live_bytes + allowed * options.wal_file_bytes
        check(found.disk_bytes - files * FILE_HEADER_BYTES <= most, found, "is more than", most)
        check(files <= 16 + found.live_bytes // 1024, found, "is too many files")
        known = files + found.spares + len(MANIFEST_NAMES)
        check(len(self.disk.list()) == known, "there are files that nobody knows")

    def check_memory(self) -> None:
        """Nothing is remembered of messages that are settled."""
        for queue in self.vhost.queues.values():
            if queue.damaged is None:
                store: Any = queue._store
                cold = store._cold
                left = [store._state.live.due, store._new_ids, store._early]
                left += [cold.apart, cold.moved, cold.unapplied, cold._blocking]
                check(not any(left), f"queue {queue.name}: remembers", left)

    def check_counts(self) -> None:
        self.note_damage()
        for queue in self.vhost.queues.values():
            if queue.damaged is not None:
                continue
            book = self.ledger.book(queue)
            delayed = queue.away.delayed_count
            counts = (queue.ready + delayed, queue.unacked)
            check(counts == book.count(), book, "counts", counts, "and not", book.count())
            self._check_scheduled(queue, book)
            book.check_order()
        for client in self.clients:
            client.check_leases()

    def _check_scheduled(self, queue: Queue, book: Book) -> None:
        """Who waits until when; a timer may be a millisecond late."""
        now, waiting = self.now_ms(), queue.away.delayed_count
        expected = book.scheduled(now)
        late = len(book.scheduled(now - 2))
        check(len(expected) <= waiting <= late, book, waiting, "wait, and not", expected)
        if expected:
            first = queue.away.delays.first(5)
            check(first == expected[:5], book, "the next are", first, "and not", expected[:5])


@contextmanager
def watched(life: Life) -> Iterator[None]:
    """Tell the ledger what passes between queues and their storage."""
    with ExitStack() as stack:
        for owner, name, watch in (*_arrivals(life), *_departures(life)):
            stack.enter_context(patch.object(owner, name, watch))
        yield


def _arrivals(life: Life) -> "list[tuple[type, str, Callable[..., Any]]]":
    enqueue, delayed, enqueued = DurableStore.enqueue, Away.delayed, Queue.enqueued

    def watch_enqueue(
        self: Any,
        messages: list[Message],
        receipt: Any,
        late: Any = (),
        ids: Any = (),
        note: Any = None,
    ) -> None:
        enqueue(self, messages, receipt, late, ids, note)
        if (book := life.book_of(self._holder)) is not None:
            book.arrived(messages, late)

    def watch_delayed(self: Any, messages: list[Message]) -> None:
        if (book := life.book_of(self._home)) is not None:
            book.enqueued(messages)
        delayed(self, messages)

    def watch_enqueued(self: Queue, messages: list[Message]) -> None:
        if (book := life.book_of(self)) is not None:
            book.enqueued(messages)
        enqueued(self, messages)

    return [
        (DurableStore, "enqueue", watch_enqueue),
        (Away, "delayed", watch_delayed),
        (Queue, "enqueued", watch_enqueued),
    ]


def _departures(life: Life) -> "list[tuple[type, str, Callable[..., Any]]]":
    bury, purge, settle = Queue._bury, Queue.purge, DurableStore.settle

    def watch_settle(self: Any, messages: list[Message]) -> None:
        if (book := life.book_of(self._holder)) is not None:
            book.settle_said(messages)
        settle(self, messages)

    def watch_bury(self: Queue, messages: list[Message], reason: str) -> None:
        if (book := life.book_of(self)) is not None:
            if reason == "expired":
                now = life.node.timers.now_ms()
                early = [m for m in messages if m.expires_at is None or m.expires_at > now]
                check(not early, book, "expired early", early)
            book.settled(messages)
        bury(self, messages, reason)

    def watch_purge(self: Queue) -> int:
        book = life.book_of(self)
        expected = book.purged() if book is not None else 0
        count = purge(self)
        check(book is None or count == expected, book, "purged", count, "and not", expected)
        return count

    return [
        (DurableStore, "settle", watch_settle),
        (Queue, "_bury", watch_bury),
        (Queue, "purge", watch_purge),
    ]
