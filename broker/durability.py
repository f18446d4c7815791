"""What survives on a node that stands alone: definitions, queues, streams, and their way back."""

from collections.abc import Iterator
from typing import Any

import trio

from broker import logs
from broker.definitions import durable_definitions, replay
from broker.global_parameters import KINDS as GLOBAL_KINDS
from broker.hosted_log import HostedLog
from broker.journal import DEFINITIONS_UID, STARTED, STOPPED, Journal
from broker.node import Node
from broker.registry.state import KINDS as SCHEMA_KINDS
from broker.security.registry import CHANGES
from broker.startup import StartupError
from broker.storage import Storage
from broker.streams.producer_registry import REGISTRY_UID, ProducerRegistry
from broker.vhost import VHost, is_durable
from queues.durable import DurableStore
from queues.ordering import is_in_order
from queues.queue import Queue
from queues.ready import Ready
from queues.seams import AnyQueue
from queues.storage.directories import Directories
from queues.storage.disk import Disk
from queues.storage.options import StoreOptions
from queues.stream.stream import Stream

_log = logs.get("storage")


class Durability(Storage):
    """The storage of a node whose logs are groups of one."""

    def __init__(
        self,
        node: Node,
        *,
        disk: Disk | None = None,
        directories: Directories | None = None,
        threaded: bool = True,
        options: StoreOptions | None = None,
    ) -> None:
        super().__init__(
            node, disk=disk, directories=directories, threaded=threaded, options=options
        )
        self._recovered: list[DurableStore] = []
        self._journal: Journal
        self.producers: ProducerRegistry  # set by `open`
        self._stopped_cleanly = False  # the last run came to its end, and this one has not begun

    def _bring_back(self) -> None:
        journal = self._journal = self._recover_definitions()
        self.producers = self._recover_producers()
        for vhost in self._node.vhosts.values():
            vhost.policies.apply_to_all()  # before: a queue's storage is made for what it is to do
            for queue in vhost.queues.values():
                if isinstance(queue, Queue):
                    self._recover_queue(vhost, queue)
            self.attach(vhost)
        node = self._node
        node.journal, node.registry.record = journal, journal.record
        node.keepers.append(self)
        node.seed()
        try:
            self._recover_streams()
        except OSError as error:
            raise StartupError(f"cannot read the streams: {error}") from error

    def attach(self, vhost: VHost) -> None:
        """A vhost was made, or has all that it had when the node stopped."""
        vhost.journal = self._journal
        vhost.make_durable = self._make_durable
        vhost.barrier = self.host.when_stored

    def detach(self, vhost: VHost) -> None:
        """Its queues go one by one."""

    def _recover_streams(self) -> None:
        queues = [queue for vhost in self._node.vhosts.values() for queue in vhost.queues.values()]
        streams = [queue for queue in queues if isinstance(queue, Stream)]
        for stream in streams:
            self.streams.recover(stream, lost_logs=self.lost_logs)
        self.streams.remove_orphans(streams)

    def _recover_definitions(self) -> Journal:
        log = self.host.open(DEFINITIONS_UID)
        reason = self.host.damage_of(log)
        if log.gid is None and (self.lost_logs or any(self.host.store.groups())):
            reason = "there are logs, and theirs is not among them"
        if reason is not None:
            raise StartupError(f"the definitions are damaged: {reason}")
        journal = Journal(log, self._definitions)
        log.machine = journal
        checkpoint = self.host.checkpoint_of(log)
        entries = [checkpoint] if checkpoint is not None else []
        for change in journal.recover([*entries, *self.host.replay(log)]):
            self._stopped_cleanly = change[0] == STOPPED
            if change[0] in GLOBAL_KINDS:
                self._node.global_parameters.make(*change)
            elif change[0] in SCHEMA_KINDS:
                self._node.schemas.make(change)
            elif change[0] in CHANGES:
                self._node.registry.apply(change)
            elif change[0] not in (STARTED, STOPPED):
                replay(self._vhost(change[1]), change)
        return journal

    def _recover_producers(self) -> ProducerRegistry:
        log = self.host.open(REGISTRY_UID)
        registry = log.machine = ProducerRegistry(log, self._node.timers.now_ms)
        reason = self.host.damage_of(log)
        if log.gid is None and self.lost_logs:
            reason = "logs are lost, and this may be one of them"
        if reason is not None:
            registry.damaged(reason)
        else:
            registry.recover(self.host.checkpoint_of(log), self.host.replay(log))
        return registry

    def _vhost(self, name: str) -> VHost:
        """Also one that was never recorded, before vhosts were: what is in it must not be lost."""
        return self._node.vhosts.get(name) or self._node.open_vhost(name)

    def _definitions(self) -> Iterator[list[Any]]:
        yield from self._node.global_parameters.changes()
        yield from self._node.schemas.changes()
        yield from self._node.registry.changes()
        for vhost in self._node.vhosts.values():
            yield from durable_definitions(vhost)

    def _make_durable(self, queue: AnyQueue) -> None:
        if isinstance(queue, Stream):
            self.streams.make(queue)
        elif isinstance(queue, Queue):
            self._attach(queue, self.host.open(queue.uid))

    def _attach(self, queue: Queue, log: HostedLog) -> DurableStore:
        options = queue.options

        def make_store(hot: Ready) -> DurableStore:
            return DurableStore(
                log,
                queue,
                self._budget,
                self._node.timers.now_ms,
                hot,
                in_order=is_in_order(options),
                grouped=options.message_groups,
            )

        store = queue.keep_in(make_store)
        log.machine = store
        return store

    def _recover_queue(self, vhost: VHost, queue: Queue) -> None:
        if not is_durable(queue):
            return
        log = self.host.open(queue.uid)
        reason = self.host.damage_of(log)
        store = self._attach(queue, log)
        if log.gid is None and self.lost_logs:
            reason = "logs are lost, and its own may be one of them"
        if reason is None and log.gid is not None:
            live = store.recover(
                self.host.checkpoint_of(log),
                self.host.replay(log),
                stopped_cleanly=self._stopped_cleanly,
            )
            reason = self.host.lacks(log, live)
            if reason is None:
                self.host.retain(log, live)
                self._recovered.append(store)
        if reason is not None:
            _log.error("queue_damaged", vhost=vhost.name, queue=queue.name, reason=reason)
            queue.damage(reason)

    async def _begin(self, nursery: trio.Nursery) -> None:
        if self._stopped_cleanly:
            # From now on messages may be delivered that the queues' logs say never were.
            self._journal.record(STARTED)
        if self._journal.pending:  # what the configuration brought in, too
            await self.host.drain()
        for store in self._recovered:
            store.start()
        self._recovered.clear()
        self.streams.start(nursery)

    async def _last_words(self) -> None:
        await self.host.drain()
        for vhost in self._node.vhosts.values():
            for queue in vhost.queues.values():
                queue.stop()
        await self.host.drain()
        self._journal.record(STOPPED)
        await self.host.drain()
