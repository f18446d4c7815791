"""A virtual host: its exchanges, queues and bindings, and the routing of messages among them."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from broker import logs
from broker.churn import Churn
from broker.dead_letter import DeadLetters
from broker.declaring import check_same, locked, options_for
from broker.equivalence import check_arguments, check_property
from broker.journal import encode_change
from broker.policy_store import PolicyStore
from broker.protocol.errors import (
    ChannelError,
    access_refused,
    not_found,
    precondition_failed,
)
from broker.protocol.tables import Table
from broker.routes import LEASE_EXCHANGE, RouteCache, Target
from broker.security.user import User
from broker.timers import Timer, Timers
from exchanges.exchange import Exchange
from exchanges.kinds import DELAYED_TYPE, is_known, validate_binding
from exchanges.routing import needs_headers, route
from queues.burials import Burial, Then
from queues.declared import Options
from queues.queue import Queue
from queues.seams import AnyQueue
from queues.stream.arguments import StreamQueueOptions
from queues.stream.names import INTERNAL
from queues.stream.stream import Stream
from queues.tally import Tally

if TYPE_CHECKING:
    from broker.cluster.placement import Placement
    from broker.cluster.seams import Definitions, MakeFront, Owner, RepliesElsewhere
    from broker.journal import Journal
    from queues.stream.membership import Groups

PREDECLARED: Final = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.topic", "topic"),
    (LEASE_EXCHANGE, "direct"),
)
RESERVED_PREFIX: Final = "amq."

_log = logs.get("vhost")


def is_temporary(queue: AnyQueue) -> bool:
    """Whether it goes with its connection or its consumers."""
    return queue.auto_delete or queue.owner is not None


class VHost:
    """Changes are plain calls that raise ChannelError; nothing here awaits."""

    def __init__(self, name: str, timers: Timers, *, queues_max: int = sys.maxsize) -> None:
        self.name = name
        self.uid = b""  # new each time that it is made; none for those of the configuration
        self.members: tuple[int, ...] = ()  # the nodes of a cluster when it was made
        self.details: dict[str, Any] = {}  # description and tags
        self.limits: dict[str, int] = {}  # such as max-queues
        self.connections = 0  # open on this node
        # Of channels and connections that are closed.
        self.past = Tally()
        self.past_received_bytes = 0
        self.past_sent_bytes = 0
        self._queues_max = queues_max
        self.churn = Churn()
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, AnyQueue] = {}
        self.reply_targets: dict[str, Target] = {}  # by rewritten reply-to address
        self.default = Exchange("", "direct", durable=True)
        self.exchanges[""] = self.default
        for exchange, kind in PREDECLARED:
            self.exchanges[exchange] = Exchange(exchange, kind, durable=True)
        self.exchanges["amq.rabbitmq.trace"] = Exchange(
            "amq.rabbitmq.trace", "topic", durable=True, internal=True
        )
        self._timers = timers
        self.journal: Journal | None = None  # set once the node's log is open
        self.barrier: Callable[[Callable[[], None]], None] | None = None
        self.make_durable: Callable[[AnyQueue], None] | None = None
        self.is_short_of_memory: Callable[[], bool] = lambda: False
        self.groups: Groups | None = None  # those who read its streams together
        # In a cluster: changes go through the catalog, which makes them here by the same calls.
        self.catalog: Definitions | None = None
        self.make_front: MakeFront | None = None
        self.replies: RepliesElsewhere | None = None
        self._caches: dict[User, RouteCache] = {}
        self._sources: dict[object, dict[Exchange, None]] = {}  # destination → who is bound to it
        self._owned: dict[object, dict[AnyQueue, None]] = {}  # exclusive queues by connection
        self._dead_letters = DeadLetters(self.exchanges.get, self.route, self._letters_refused)
        self.policies = PolicyStore(
            *(name, self.queues, self.exchanges, timers),
            record=self._record,
            forget_routes=self._forget_routes,
        )

    @property
    def queues_max(self) -> int:
        limit = self.limits.get("max-queues", -1)
        return self._queues_max if limit < 0 else min(limit, self._queues_max)

    # Looking up

    def exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise not_found(f"no {self._exchange_text(name)}")
        return exchange

    def queue(self, name: str, *, user_of: object) -> AnyQueue:
        """The queue, if it can be used, and not only by another connection than `user_of`."""
        queue = self.queue_of(name, user_of=user_of)
        if queue.damaged is not None:
            raise not_found(f"{self._queue_text(name)} is damaged: {queue.damaged}")
        return queue

    def queue_of(self, name: str, *, user_of: object) -> AnyQueue:
        """The same, be it damaged or not."""
        queue = self.queues.get(name)
        if queue is None:
            raise not_found(f"no {self._queue_text(name)}")
        if queue.owner is not None and queue.owner != self._owner_of(user_of):
            raise locked(self._queue_text(name))
        return queue

    def writable_queue(self, name: str, *, user_of: object) -> AnyQueue:
        """The queue, if messages may be put into it: the broker's own are for nobody else."""
        self.refuse_internal(name)
        return self.queue(name, user_of=user_of)

    def refuse_internal(self, name: str) -> None:
        """The one place below all doors where the broker's own queues are kept from clients."""
        if name in INTERNAL:
            raise access_refused(f"{self._queue_text(name)} is the broker's own")

    def admit_definition(self) -> None:
        """Raise 506 while memory is short: a definition takes some, as a message does."""
        if self.is_short_of_memory():
            raise ChannelError(506, "low on memory: nothing new can be defined for now")

    def admit_binding(
        self, source: str, destination: AnyQueue | Exchange | None, key: str, arguments: Table
    ) -> None:
        """The same, unless it is there already: clients declare all they need when they come.

        Nor for queues that go with their consumers, who are needed when memory is short.
        """
        exchange = self.exchanges.get(source)
        if exchange is None or destination is None:
            return
        if not isinstance(destination, Exchange) and is_temporary(destination):
            return
        if not exchange.has_binding(destination, key, arguments):
            self.admit_definition()

    def _owner_of(self, user: object) -> object:
        """What owns exclusive queues: the connection, or its name within the cluster."""
        return user if self.catalog is None else self.catalog.owner_of(user)

    def _exchange_text(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self.name}'"

    def _queue_text(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self.name}'"

    # Exchanges

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
    ) -> None:
        _refuse_default_exchange(name)
        if not is_known(kind):
            raise precondition_failed(f"unknown exchange type '{kind}'")
        existing = self.exchanges.get(name)
        thing = self._exchange_text(name)
        if existing is not None:
            check_property("type", thing, received=kind, current=existing.type)
            check_property("durable", thing, received=durable, current=existing.durable)
            check_property("auto_delete", thing, received=auto_delete, current=existing.auto_delete)
            check_property("internal", thing, received=internal, current=existing.internal)
            names = ("alternate-exchange", DELAYED_TYPE)
            check_arguments(names, thing, received=arguments, current=existing.arguments)
            return
        if name.startswith(RESERVED_PREFIX):
            raise access_refused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        try:
            exchange = Exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
        except ValueError as error:
            raise precondition_failed(f"{error} in {thing}") from None
        if self.catalog is None:
            encode_change(["exchange", name, arguments])  # one that is not recorded is bounded too
        if durable:
            self._record("exchange", name, kind, auto_delete, internal, arguments)
        self.exchanges[name] = exchange
        self.policies.apply_to_exchange(exchange)
        self._forget_routes()

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        _refuse_default_exchange(name)
        if name.startswith(RESERVED_PREFIX) and name in self.exchanges:
            text = f"deletion of system {self._exchange_text(name)} not allowed"
            raise access_refused(text)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.has_bindings:
            raise precondition_failed(f"{self._exchange_text(name)} in use")
        self.drop_exchange(exchange)

    def drop_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        if exchange.durable:
            self._record("-exchange", exchange.name)
        for binding in list(exchange.bindings()):
            sources = self._sources.get(binding.destination)
            if sources is not None:
                sources.pop(exchange, None)
        self._unbind_destination(exchange)
        self._forget_routes()

    # Queues

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Table,
        user_of: object,
    ) -> AnyQueue:
        """Make the queue, or check that it is the same. `owner` is set for an exclusive one."""
        self.refuse_internal(name)
        return self._declare_queue(
            name,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
            user_of=user_of,
        )

    def declare_internal(self, name: str, arguments: Table) -> AnyQueue:
        """A stream of the broker's own. Raises ChannelError if a queue of that name is another."""
        assert name in INTERNAL, name
        return self._declare_queue(
            name,
            durable=True,
            auto_delete=False,
            owner=None,
            arguments=arguments,
            user_of=None,
        )

    def _declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Table,
        user_of: object,
    ) -> AnyQueue:
        self.churn.queue_declared += 1
        existing = self.queues.get(name)
        if existing is not None:
            check_same(
                existing,
                self._queue_text(name),
                durable=durable,
                auto_delete=auto_delete,
                owner=owner,
                arguments=arguments,
                user_of=user_of,
            )
            existing.touch()
            return existing
        exclusive = owner is not None
        options = self._options_for_new(
            name, arguments, durable=durable, auto_delete=auto_delete, exclusive=exclusive
        )
        encode_change(["queue", name, arguments])
        uid = uuid4().bytes
        if durable and owner is None:
            self._record("queue", name, uid, auto_delete, options.type, arguments)
        queue = self.make_queue(
            name, options, arguments, durable=durable, auto_delete=auto_delete, owner=owner
        )
        queue.uid = uid
        self.policies.apply_to_queue(queue)
        if is_durable(queue) and self.make_durable is not None:
            self.make_durable(queue)
        if isinstance(queue, Stream):
            self._stream_changed(queue)
        return queue

    def options_for_new(
        self, name: str, arguments: Table, *, durable: bool, auto_delete: bool, exclusive: bool
    ) -> Options:
        """What a queue that is not there yet would do. Raises ChannelError if it cannot be."""
        self.refuse_internal(name)
        return self._options_for_new(
            name, arguments, durable=durable, auto_delete=auto_delete, exclusive=exclusive
        )

    def _options_for_new(
        self, name: str, arguments: Table, *, durable: bool, auto_delete: bool, exclusive: bool
    ) -> Options:
        thing = self._queue_text(name)
        if len(self.queues) >= self.queues_max:
            limit = f"queue limit in vhost '{self.name}' ({self.queues_max}) is reached"
            raise precondition_failed(f"cannot declare {thing}: {limit}")
        return options_for(
            name, thing, arguments, durable=durable, auto_delete=auto_delete, exclusive=exclusive
        )

    def place_queue(
        self,
        name: str,
        uid: bytes,
        options: Options,
        arguments: Table,
        *,
        durable: bool,
        auto_delete: bool,
        owner: "Owner | None",
        placement: "Placement",
        settings: Table,
    ) -> AnyQueue:
        """A new queue of the cluster, as the catalog has it."""
        assert self.make_front is not None
        queue = self.make_front(
            name,
            uid,
            options,
            arguments,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            placement=placement,
        )
        queue.settings = settings
        self._add_queue(queue)
        self.policies.apply_to_queue(queue)
        if isinstance(queue, Stream):
            self._stream_changed(queue)
        return queue

    def make_queue(
        self,
        name: str,
        options: Options,
        arguments: Table,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
    ) -> AnyQueue:
        queue: AnyQueue
        if isinstance(options, StreamQueueOptions):
            queue = Stream(name, self, options, arguments=arguments)
        else:
            queue = Queue(
                name,
                self,
                options,
                arguments=arguments,
                durable=durable,
                auto_delete=auto_delete,
                owner=owner,
            )
        self._add_queue(queue)
        return queue

    def _add_queue(self, queue: AnyQueue) -> None:
        self.queues[queue.name] = queue
        self.churn.queue_created += 1
        if queue.owner is not None:
            self._owned.setdefault(queue.owner, {})[queue] = None
        if queue.name not in INTERNAL:
            self.add_binding(self.default, queue, queue.name, {})

    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool, user_of: object) -> int:
        """The number of messages that went with it; deleting what is not there is fine."""
        self.refuse_internal(name)
        if name not in self.queues:
            return 0
        queue = self.queue_of(name, user_of=user_of)
        if if_unused and queue.consumer_count:
            raise precondition_failed(f"{self._queue_text(name)} in use")
        if if_empty and (not queue.is_empty or queue.damaged is not None):
            raise precondition_failed(f"{self._queue_text(name)} not empty")
        return self.drop_queue(queue)

    def queue_unused(self, queue: Queue) -> None:
        """An auto-delete queue lost its last consumer, an exclusive one its connection, …"""
        if self.catalog is not None:
            self.catalog.request(["-queue", self.name, queue.name, queue.uid], lasting=True)
        elif self.queues.get(queue.name) is queue:
            self.drop_queue(queue)

    def forget_owner(self, owner: object, then: Callable[[], None] = lambda: None) -> None:
        """A connection ended: its exclusive queues go. `then` when they are gone everywhere."""
        if self.catalog is not None:
            self.catalog.forget_owner(owner, then)
        else:
            for queue in self.owned_by(owner):
                self.drop_queue(queue)
            then()

    def owned_by(self, owner: object) -> list[AnyQueue]:
        return list(self._owned.get(owner, ()))

    def drop_queue(self, queue: AnyQueue) -> int:
        del self.queues[queue.name]
        self.churn.queue_deleted += 1
        if is_durable(queue):
            self._record("-queue", queue.name)
        if queue.owner is not None:
            owned = self._owned[queue.owner]
            del owned[queue]
            if not owned:
                del self._owned[queue.owner]
        self._unbind_destination(queue)
        self._forget_routes()
        count = queue.delete()
        if isinstance(queue, Stream):
            self._stream_changed(queue)
        return count

    def close(self) -> None:
        """The vhost is deleted, with all that is in it. Nobody uses it any more."""
        for queue in list(self.queues.values()):
            self.drop_queue(queue)
        for user in list(self._caches):
            self.forget_user(user)

    def _stream_changed(self, stream: Stream) -> None:
        if self.groups is not None:
            self.groups.stream_changed(stream.name, len(stream.partitions))

    # Bindings

    def bind(
        self, source: str, destination: AnyQueue | Exchange, key: str, arguments: Table
    ) -> None:
        _refuse_default_exchange(source)
        exchange = self.exchange(source)
        try:
            validate_binding(exchange.routing_type, key, arguments)
        except ValueError as error:
            raise precondition_failed(str(error)) from None
        if self.catalog is None:
            encode_change(["binding", source, destination.name, key, arguments])
        self.add_binding(exchange, destination, key, arguments)

    def add_binding(
        self, exchange: Exchange, destination: AnyQueue | Exchange, key: str, arguments: Table
    ) -> None:
        if not isinstance(destination, Exchange):
            self.refuse_internal(destination.name)
        if exchange.has_binding(destination, key, arguments):
            return
        if exchange is not self.default and is_durable(exchange) and is_durable(destination):
            self._record_binding("binding", exchange, destination, key, arguments)
        exchange.bind(destination, key, arguments)
        self._sources.setdefault(destination, {})[exchange] = None
        self._forget_routes()

    def unbind(
        self, source: str, destination: AnyQueue | Exchange, key: str, arguments: Table
    ) -> None:
        _refuse_default_exchange(source)
        exchange = self.exchanges.get(source)
        if exchange is not None and exchange.unbind(destination, key, arguments):
            if is_durable(exchange) and is_durable(destination):
                self._record_binding("-binding", exchange, destination, key, arguments)
            self._after_unbind(exchange)

    def bound_to(self, destination: AnyQueue | Exchange) -> list[Exchange]:
        """The exchanges from which bindings lead there."""
        return list(self._sources.get(destination, ()))

    def remove_binding(
        self, exchange: Exchange, destination: AnyQueue | Exchange, key: str, arguments: Table
    ) -> None:
        """Without the end of an exchange that goes with the last of them."""
        if exchange.unbind(destination, key, arguments):
            self._forget_routes()

    def _unbind_destination(self, destination: AnyQueue | Exchange) -> None:
        for exchange in self._sources.pop(destination, {}):
            if exchange.unbind_all(destination):
                self._after_unbind(exchange)

    def _after_unbind(self, exchange: Exchange) -> None:
        self._forget_routes()
        gone = exchange.auto_delete and not exchange.has_bindings
        if gone and self.exchanges.get(exchange.name) is exchange:
            self.drop_exchange(exchange)

    # Definitions that survive a restart

    def _record(self, kind: str, *details: object) -> None:
        if self.journal is not None:
            self.journal.record(kind, self.name, *details)

    def _record_binding(
        self,
        kind: str,
        exchange: Exchange,
        destination: AnyQueue | Exchange,
        key: str,
        arguments: Table,
    ) -> None:
        what = "exchange" if isinstance(destination, Exchange) else "queue"
        self._record(kind, exchange.name, what, destination.name, key, arguments)

    @property
    def definitions_pending(self) -> bool:
        """Changes were made that are not on disk yet."""
        return self.journal is not None and self.journal.pending

    def when_stored(self, action: Callable[[], None]) -> None:
        """Call back when all that was said to any queue so far is durable."""
        if self.barrier is None:
            action()
        else:
            self.barrier(action)

    def when_durable(self, action: Callable[[], None]) -> None:
        if self.journal is None:
            action()
        else:
            self.journal.when_durable(action)

    # Routing

    def routes_for(self, user: User) -> RouteCache:
        cache = self._caches.get(user)
        if cache is None:
            cache = RouteCache(self.name, user, self.exchange, self._targets, self._reply_target)
            self._caches[user] = cache
            user.on_change.append(cache.routes.clear)
        return cache

    def forget_user(self, user: User) -> None:
        """Who is no more, or may not come here any more."""
        cache = self._caches.pop(user, None)
        if cache is not None:
            cache.routes.clear()
            user.on_change.remove(cache.routes.clear)

    def _reply_target(self, address: str) -> Target | None:
        target = self.reply_targets.get(address)
        if target is None and self.replies is not None:
            target = self.replies.find(self.name, address)
        return target

    def _forget_routes(self) -> None:
        for cache in self._caches.values():
            cache.routes.clear()

    def _targets(self, exchange: Exchange, key: str) -> tuple[Target, ...] | None:
        """Where a key leads; None where headers decide."""
        if exchange is self.default and key in INTERNAL:
            raise access_refused(f"{self._queue_text(key)} is written by the broker alone")
        if needs_headers(exchange, self._alternate):
            return None
        return tuple(self.route(exchange, (key,), {}))

    def _alternate(self, name: str) -> Exchange | None:
        """An exchange by name as alternates name it: the default exchange is not among them."""
        return self.exchanges.get(name) if name else None

    def route(self, exchange: Exchange, keys: Sequence[str], headers: Table) -> list[AnyQueue]:
        queues: list[AnyQueue] = route(exchange, keys, headers, self._alternate)
        return queues

    # Dead letters, and what else queues ask for

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        return self._timers.call_at(when_ms, callback)

    def stream_unreadable(self, stream: Stream, reason: str) -> None:
        _log.error("stream_unreadable", vhost=self.name, stream=stream.name, reason=reason)

    def dead_letter(self, queue: Queue, burial: Burial, then: Then) -> None:
        self._dead_letters.send(queue, burial, then)

    def _letters_refused(self, queue: Queue, target: AnyQueue, count: int) -> None:
        names = {"queue": queue.name, "target": target.name}
        _log.warning("dead_letters_wait", vhost=self.name, **names, messages=count)


def is_durable(thing: AnyQueue | Exchange) -> bool:
    """Whether it survives a restart: an exclusive queue never outlives its connection."""
    return thing.durable and (isinstance(thing, Exchange) or thing.owner is None)


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise access_refused("operation not permitted on the default exchange")
