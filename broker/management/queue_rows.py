"""What the management API says of a queue: a table of columns for each type, as RabbitMQ's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.message_json import plain_value
from broker.management.listing import MISSING
from broker.management.rates import OF_QUEUES, ZERO, Ages, View, message_stats
from broker.management.sampler import QUEUE_FIELDS, published, tally_values
from broker.management.whereabouts import Whereabouts, led_here
from broker.sqs.attributes import SQS
from queues.options import altered
from queues.queue import Queue
from queues.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.http.admin import Call
    from broker.management.listing import Columns
    from broker.management.sampler import Sampler
    from broker.vhost import VHost
    from queues.consumers import Consumer
    from queues.seams import AnyQueue
    from queues.statistics import QueueStatistics

# What RabbitMQ says where there is nothing to be collected.
NO_COLLECTOR: Final = dict.fromkeys(
    ("max_heap_size", "min_bin_vheap_size", "min_heap_size", "fullsweep_after", "minor_gcs"), -1
)


IDLE: Final = View(None, QUEUE_FIELDS, 0)  # of what was not busy lately


class Source(NamedTuple):
    """What rows are made from, beside the queues themselves."""

    where: Whereabouts
    sampler: Sampler
    ages: Ages


class Item:
    """A queue of a list."""

    __slots__ = ("_statistics", "_views", "here", "queue", "source", "vhost")

    def __init__(self, vhost: VHost, queue: AnyQueue, source: Source) -> None:
        self.vhost = vhost
        self.queue = queue
        self.source = source
        self.here = led_here(queue)
        self._views: dict[str, View] = {}
        self._statistics: QueueStatistics | None = None

    @property
    def where(self) -> Whereabouts:
        return self.source.where

    def view(self, kind: str) -> View:
        """Its samples: of lengths, or of messages."""
        view = self._views.get(kind)
        if view is None:
            sampler, age = self.source.sampler, getattr(self.source.ages, kind)
            series = sampler.queue(self.queue)
            if series is None and age is None:
                return IDLE
            view = View(series, QUEUE_FIELDS, sampler.tick, age)
            self._views[kind] = view
        return view

    @property
    def ready(self) -> int:
        return self.queue.ready

    @property
    def unacked(self) -> int:
        return self.queue.unacked

    def statistics(self) -> QueueStatistics | None:
        here = self.here
        if self._statistics is None and isinstance(here, Queue):
            self._statistics = here.statistics()
        return self._statistics

    def active(self) -> Consumer | None:
        """The single active consumer."""
        here = self.here
        if not isinstance(here, Queue) or not here.options.single_active_consumer:
            return None
        return next(iter(here.consumers), None)


def _length(*names: str) -> Callable[[Item], dict[str, Any]]:
    return lambda item: item.view("lengths").details(*names)


def _message_stats(item: Item) -> Any:
    """None at all while nothing has happened."""
    here = item.here
    if here is None:
        return MISSING
    if isinstance(here, Queue):
        tally = here.tally
    else:
        tally = Tally()
        tally.publish = published(here)
    if not any(tally_values(tally)):
        return MISSING
    return message_stats(tally, item.view("messages"), OF_QUEUES)


def _state(item: Item) -> str:
    if item.queue.damaged is not None:
        return "crashed"
    return "down" if item.here is None and not item.where.online(item.queue) else "running"


def _in_memory(item: Item) -> int:
    found = item.statistics()
    return 0 if found is None else found.in_memory + found.unacked


def _paged_out(item: Item) -> int:
    found = item.statistics()
    return 0 if found is None else found.on_disk


def _dying(item: Item) -> int:
    """Messages that died, and wait for their dead letters to be safe."""
    found = item.statistics()
    return 0 if found is None else found.dying


def _bytes(item: Item) -> int:
    here = item.here
    return here.ready_bytes if isinstance(here, Queue) else 0


def _memory(item: Item) -> int:
    """What its messages take in memory, at most."""
    return 0 if not _in_memory(item) else _bytes(item)


def _capacity(item: Item) -> float:
    """How much of the time messages can be delivered at once: all, or none without consumers."""
    here = item.here
    if not isinstance(here, Queue) or not here.consumer_count:
        return 0
    return 1.0 if not here.ready else 0.0


def _exclusive_tag(item: Item) -> str | None:
    here = item.here
    if isinstance(here, Queue) and here.has_exclusive_consumer:
        return here.consumers[0].tag
    return None


def _active_tag(item: Item) -> str | None:
    active = item.active()
    return None if active is None else active.tag


def _idle_since(item: Item) -> Any:
    """When a sample last differed; nothing while there is something to do, or there was nothing."""
    sampler = item.source.sampler
    series = sampler.queue(item.queue)
    if series is None or series.last_tick >= sampler.tick:
        return MISSING
    return sampler.time_of(series.last_tick)


def _backing(item: Item) -> dict[str, Any]:
    """What monitoring tools look for in it."""
    dying = _dying(item)  # RabbitMQ has no such field of a classic queue, and no such promise
    return {"len": item.ready, "messages_dlx": dying, "mode": "default", "version": 1}


def shown_arguments(
    arguments: Mapping[str, object], settings: Mapping[str, object]
) -> dict[str, object]:
    """Those that a client could have declared; what SQS keeps for itself is not among them."""
    own = altered(arguments, settings)
    own.pop(SQS, None)
    return {name: plain_value(value) for name, value in own.items()}


PLAIN: Final[Columns[Item]] = {  # known on every node
    "arguments": lambda item: shown_arguments(item.queue.arguments, item.queue.settings),
    "auto_delete": lambda item: item.queue.auto_delete,
    "durable": lambda item: item.queue.durable,
    "exclusive": lambda item: item.queue.owner is not None,
    "name": lambda item: item.queue.name,
    "node": lambda item: item.where.leader(item.queue),
    "state": _state,
    "type": lambda item: item.queue.options.type,
    "vhost": lambda item: item.vhost.name,
}
TOTALS: Final[Columns[Item]] = {
    "messages": lambda item: item.ready + item.unacked,
    "messages_ready": lambda item: item.ready,
    "messages_unacknowledged": lambda item: item.unacked,
}
_COMMON: Final[Columns[Item]] = {
    **PLAIN,
    **TOTALS,
    "consumers": lambda item: item.queue.consumer_count,
    "effective_policy_definition": lambda item: item.vhost.policies.definition_of(item.queue),
    "garbage_collection": lambda _: NO_COLLECTOR,
    "memory": _memory,
    "message_stats": _message_stats,
    "operator_policy": lambda item: item.queue.operator_policy,
    "policy": lambda item: item.queue.policy,
    "messages_details": _length("messages_ready", "messages_unacknowledged"),
    "messages_ready_details": _length("messages_ready"),
    "messages_unacknowledged_details": _length("messages_unacknowledged"),
    "reductions": lambda _: 0,
    "reductions_details": lambda _: ZERO,
}
_FIFO: Final[Columns[Item]] = {
    **_COMMON,
    "consumer_capacity": _capacity,
    "consumer_utilisation": _capacity,
    "message_bytes": _bytes,
    "message_bytes_persistent": lambda item: _bytes(item) if item.queue.durable else 0,
    "message_bytes_ram": _memory,
    "message_bytes_ready": _bytes,
    "message_bytes_unacknowledged": lambda _: 0,  # nobody counts them
    "messages_persistent": lambda item: item.ready + item.unacked if item.queue.durable else 0,
    "messages_ram": _in_memory,
}
_MEMBERS: Final[Columns[Item]] = {
    "members": lambda item: item.where.members(item.queue),
    "online": lambda item: item.where.online(item.queue),
}
COLUMNS: Final[dict[str, Columns[Item]]] = {
    "classic": {
        **_FIFO,
        "backing_queue_status": _backing,
        "idle_since": _idle_since,
        "exclusive_consumer_tag": _exclusive_tag,
        "head_message_timestamp": lambda _: None,
        "message_bytes_paged_out": lambda item: _bytes(item) if _paged_out(item) else 0,
        "messages_paged_out": _paged_out,
        "messages_ready_ram": lambda item: max(0, _in_memory(item) - item.unacked),
        "messages_unacknowledged_ram": lambda item: item.unacked,
        "recoverable_slaves": lambda _: None,
        "single_active_consumer_tag": _active_tag,
    },
    "quorum": {
        **_FIFO,
        **_MEMBERS,
        "leader": lambda item: item.where.leader(item.queue),
        "message_bytes_dlx": lambda _: 0,  # nobody counts them
        "messages_dlx": _dying,
        "open_files": lambda item: dict.fromkeys(item.where.members(item.queue), 0),
        "single_active_consumer_ctag": _active_tag,
    },
    "stream": {
        **_COMMON,
        **_MEMBERS,
        "readers": lambda item: {item.where.me: item.queue.consumer_count},
    },
}


def columns_of(item: Item) -> Columns[Item]:
    return COLUMNS[item.queue.options.type]


def columns_for(call: Call, item: Item) -> Columns[Item]:
    """What a request wants to know of a queue: its query may do without statistics."""
    query = call.request.query
    if query.get("disable_stats", [""])[-1] != "true":
        return columns_of(item)
    if query.get("enable_queue_totals", [""])[-1] != "true":
        return PLAIN
    return {**PLAIN, **TOTALS}
