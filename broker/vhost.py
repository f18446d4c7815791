"""A virtual host: its exchanges, queues and bindings, and the routing of messages among them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from broker.auth import User
from broker.dead_letter import DeadLetters
from broker.equivalence import check_arguments, check_property
from broker.protocol.errors import (
    access_refused,
    not_found,
    precondition_failed,
    resource_locked,
)
from broker.protocol.tables import Table
from broker.routes import RouteCache, Target
from broker.timers import Timer, Timers
from exchanges.exchange import Exchange
from exchanges.kinds import KINDS, validate_binding
from exchanges.routing import needs_headers, route
from queues.message import Message
from queues.options import (
    EQUIVALENCE_ARGUMENTS,
    InvalidArgumentError,
    QueueOptions,
    default_type,
    parse_options,
)
from queues.queue import Queue

if TYPE_CHECKING:
    from broker.journal import Journal

PREDECLARED: Final = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.topic", "topic"),
)
RESERVED_PREFIX: Final = "amq."
SERVER_NAMED: Final = "amq.gen-"

_LOCKED: Final = (
    "cannot obtain exclusive access to locked {}. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


class VHost:
    """Changes are plain calls that raise ChannelError; nothing here awaits."""

    def __init__(self, name: str, timers: Timers) -> None:
        self.name = name
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
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
        self.make_durable: Callable[[Queue], None] | None = None
        self._caches: dict[User, RouteCache] = {}
        self._sources: dict[object, dict[Exchange, None]] = {}  # destination → who is bound to it
        self._owned: dict[object, dict[Queue, None]] = {}  # exclusive queues by connection
        self._dead_letters = DeadLetters(self.exchanges.get, self.route, timers.now_ms)

    # Looking up

    def exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise not_found(f"no {self._exchange_text(name)}")
        return exchange

    def queue(self, name: str, *, user_of: object) -> Queue:
        """The queue, if it can be used, and not only by another connection than `user_of`."""
        queue = self._queue_of(name, user_of)
        if queue.damaged is not None:
            raise not_found(f"{self._queue_text(name)} is damaged: {queue.damaged}")
        return queue

    def _queue_of(self, name: str, user_of: object) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise not_found(f"no {self._queue_text(name)}")
        if queue.owner is not None and queue.owner is not user_of:
            raise resource_locked(_LOCKED.format(self._queue_text(name)))
        return queue

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
        if kind not in KINDS:
            raise precondition_failed(f"unknown exchange type '{kind}'")
        existing = self.exchanges.get(name)
        thing = self._exchange_text(name)
        if existing is not None:
            check_property("type", thing, received=kind, current=existing.type)
            check_property("durable", thing, received=durable, current=existing.durable)
            check_property("auto_delete", thing, received=auto_delete, current=existing.auto_delete)
            check_property("internal", thing, received=internal, current=existing.internal)
            names = ("alternate-exchange",)
            check_arguments(names, thing, received=arguments, current=existing.arguments)
            return
        if name.startswith(RESERVED_PREFIX):
            raise access_refused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        try:
            self.exchanges[name] = Exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
        except ValueError as error:
            raise precondition_failed(f"{error} in {thing}") from None
        self._forget_routes()
        if durable:
            self._record("exchange", name, kind, auto_delete, internal, arguments)

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
    ) -> Queue:
        """Make the queue, or check that it is the same. `owner` is set for an exclusive one."""
        existing = self.queues.get(name)
        if existing is not None:
            self._check_same_queue(
                existing,
                durable=durable,
                auto_delete=auto_delete,
                owner=owner,
                arguments=arguments,
                user_of=user_of,
            )
            existing.touch()
            return existing
        lasting = durable and owner is None and not auto_delete and not is_server_named(name)
        default = default_type(arguments, lasting=lasting)
        try:
            options = parse_options(arguments, default=default)
        except InvalidArgumentError as error:
            text = f"invalid arg '{error.name}' for {self._queue_text(name)}: {error.reason}"
            raise precondition_failed(text) from None
        if options.type == "quorum":
            for wrong, label in (
                (not durable, "non-durable"),
                (auto_delete, "auto-delete"),
                (owner is not None, "exclusive-owner"),
            ):
                if wrong:
                    text = f"invalid property '{label}' for {self._queue_text(name)}"
                    raise precondition_failed(text)
        uid = uuid4().bytes
        if durable and owner is None:
            self._record("queue", name, uid, auto_delete, options.type, arguments)
        queue = self.make_queue(
            name, options, arguments, durable=durable, auto_delete=auto_delete, owner=owner
        )
        queue.uid = uid
        if is_durable(queue) and self.make_durable is not None:
            self.make_durable(queue)
        return queue

    def make_queue(
        self,
        name: str,
        options: QueueOptions,
        arguments: Table,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
    ) -> Queue:
        queue = Queue(
            name,
            self,
            options,
            arguments=arguments,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
        )
        self.queues[name] = queue
        if owner is not None:
            self._owned.setdefault(owner, {})[queue] = None
        self.add_binding(self.default, queue, name, {})
        return queue

    def _check_same_queue(
        self,
        queue: Queue,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Table,
        user_of: object,
    ) -> None:
        thing = self._queue_text(queue.name)
        if queue.owner is not owner or (queue.owner is not None and queue.owner is not user_of):
            raise resource_locked(_LOCKED.format(thing))
        check_property("durable", thing, received=durable, current=queue.durable)
        check_property("auto_delete", thing, received=auto_delete, current=queue.auto_delete)
        received = {"x-queue-type": queue.options.type, **arguments}
        current = {"x-queue-type": queue.options.type, **queue.arguments}
        check_arguments(EQUIVALENCE_ARGUMENTS, thing, received=received, current=current)

    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool, user_of: object) -> int:
        """The number of messages that went with it; deleting what is not there is fine."""
        if name not in self.queues:
            return 0
        queue = self._queue_of(name, user_of)
        if if_unused and queue.consumer_count:
            raise precondition_failed(f"{self._queue_text(name)} in use")
        if if_empty and (queue.ready or queue.damaged is not None):
            raise precondition_failed(f"{self._queue_text(name)} not empty")
        return self.drop_queue(queue)

    def queue_unused(self, queue: Queue) -> None:
        """An auto-delete queue lost its last consumer, an exclusive one its connection, …"""
        if self.queues.get(queue.name) is queue:
            self.drop_queue(queue)

    def forget_owner(self, owner: object) -> None:
        """A connection ended: its exclusive queues go."""
        for queue in list(self._owned.get(owner, ())):
            self.drop_queue(queue)

    def drop_queue(self, queue: Queue) -> int:
        del self.queues[queue.name]
        if is_durable(queue):
            self._record("-queue", queue.name)
        if queue.owner is not None:
            owned = self._owned[queue.owner]
            del owned[queue]
            if not owned:
                del self._owned[queue.owner]
        self._unbind_destination(queue)
        self._forget_routes()
        return queue.delete()

    # Bindings

    def bind(self, source: str, destination: Queue | Exchange, key: str, arguments: Table) -> None:
        _refuse_default_exchange(source)
        exchange = self.exchange(source)
        try:
            validate_binding(exchange.type, key, arguments)
        except ValueError as error:
            raise precondition_failed(str(error)) from None
        self.add_binding(exchange, destination, key, arguments)

    def add_binding(
        self, exchange: Exchange, destination: Queue | Exchange, key: str, arguments: Table
    ) -> None:
        if exchange.bind(destination, key, arguments):
            self._sources.setdefault(destination, {})[exchange] = None
            self._forget_routes()
            if exchange is not self.default and is_durable(exchange) and is_durable(destination):
                self._record_binding("binding", exchange, destination, key, arguments)

    def unbind(
        self, source: str, destination: Queue | Exchange, key: str, arguments: Table
    ) -> None:
        _refuse_default_exchange(source)
        exchange = self.exchanges.get(source)
        if exchange is not None and exchange.unbind(destination, key, arguments):
            if is_durable(exchange) and is_durable(destination):
                self._record_binding("-binding", exchange, destination, key, arguments)
            self._after_unbind(exchange)

    def _unbind_destination(self, destination: Queue | Exchange) -> None:
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
        destination: Queue | Exchange,
        key: str,
        arguments: Table,
    ) -> None:
        what = "queue" if isinstance(destination, Queue) else "exchange"
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

            def may_write(exchange: str) -> bool:
                return user.may(self.name, "write", exchange)

            find_reply = self.reply_targets.get
            cache = RouteCache(self.name, self.exchange, self._targets, find_reply, may_write)
            self._caches[user] = cache
        return cache

    def _forget_routes(self) -> None:
        for cache in self._caches.values():
            cache.routes.clear()

    def _targets(self, exchange: Exchange, key: str) -> tuple[Target, ...] | None:
        """Where a key leads; None where headers decide."""
        if needs_headers(exchange, self._alternate):
            return None
        return tuple(self.route(exchange, (key,), {}))

    def _alternate(self, name: str) -> Exchange | None:
        """An exchange by name as alternates name it: the default exchange is not among them."""
        return self.exchanges.get(name) if name else None

    def route(self, exchange: Exchange, keys: Sequence[str], headers: Table) -> list[Queue]:
        queues: list[Queue] = route(exchange, keys, headers, self._alternate)
        return queues

    # Dead letters, and what else queues ask for

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        return self._timers.call_at(when_ms, callback)

    def dead_letter(
        self, queue: Queue, messages: list[Message], reason: str, then: Callable[[], None]
    ) -> None:
        self._dead_letters.send(queue, messages, reason, then)


def is_server_named(queue: str) -> bool:
    return queue.startswith(SERVER_NAMED)


def is_durable(thing: Queue | Exchange) -> bool:
    """Whether it survives a restart: an exclusive queue never outlives its connection."""
    return thing.durable and (isinstance(thing, Exchange) or thing.owner is None)


def _refuse_default_exchange(name: str) -> None:
    if not name:
        raise access_refused("operation not permitted on the default exchange")
