"""What lists of queues are sorted by, straight from the queue: only rows of the page are made.

With 50,000 queues each microsecond that a rank takes is 50 ms of a request. Counts are those of the
moment; rates change with the samples, every five seconds, and not in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from broker.cluster.front import QueueFront
from broker.management.queue_rows import shown_arguments
from broker.management.rates import COUNTED, GIVEN
from broker.management.sampler import QUEUE_FIELDS, published
from queues.queue import Queue
from queues.tally import FIELDS

if TYPE_CHECKING:
    from broker.management.listing import Path
    from broker.management.sampler import Sampler
    from broker.management.whereabouts import Whereabouts
    from queues.seams import AnyQueue

Rank: TypeAlias = Callable[["AnyQueue"], Any]  # for one list: all texts, or all numbers

LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
_DETAILS: Final = "_details"


def _messages(queue: AnyQueue) -> int:
    return queue.ready + queue.unacked


def _bytes(queue: AnyQueue) -> int:
    here = queue.queue if type(queue) is QueueFront else queue
    return here.ready_bytes if isinstance(here, Queue) else 0


def _in_memory(queue: AnyQueue) -> int:
    here = queue.queue if type(queue) is QueueFront else queue
    return here.ready - here.on_disk + here.unacked if isinstance(here, Queue) else 0


def _memory(queue: AnyQueue) -> int:
    return _bytes(queue) if _in_memory(queue) else 0


def _arguments(queue: AnyQueue) -> str:
    if not queue.arguments and not queue.settings:
        return "{}"
    return json.dumps(shown_arguments(queue.arguments, queue.settings), sort_keys=True)


_PLAIN: Final[dict[str, Rank]] = {
    "messages": _messages,
    "messages_ready": attrgetter("ready"),
    "messages_unacknowledged": attrgetter("unacked"),
    "consumers": attrgetter("consumer_count"),
    "message_bytes": _bytes,
    "message_bytes_ready": _bytes,
    "messages_ram": _in_memory,
    "memory": _memory,
    "type": attrgetter("options.type"),
    "durable": attrgetter("durable"),
    "auto_delete": attrgetter("auto_delete"),
    "exclusive": lambda queue: queue.owner is not None,
    "arguments": _arguments,
    "policy": lambda queue: queue.policy or "",
    "operator_policy": lambda queue: queue.operator_policy or "",
}


def rank_of(path: Path, sampler: Sampler, where: Whereabouts) -> Rank | None:
    """None where there is no short way to what the path names."""
    if len(path) == 1 and path[0] in _PLAIN:
        return _PLAIN[path[0]]
    match path:
        case ("node" | "leader",):
            return where.leader
        case ("state",):
            return _state(where)
        case ("idle_since",):
            return _idleness(sampler)
        case ("message_stats", name) if name in FIELDS or name == "deliver_get":
            return _count(GIVEN if name == "deliver_get" else (name,))
        case ("message_stats", name, "rate") if name.endswith(_DETAILS):
            counted = name.removesuffix(_DETAILS)
            names = GIVEN if counted == "deliver_get" else (counted,)
            return _rate(sampler, names) if set(names) <= set(FIELDS) else None
        case ("messages_details", "rate"):
            return _rate(sampler, LENGTHS)
        case (name, "rate") if name.removesuffix(_DETAILS) in LENGTHS:
            return _rate(sampler, (name.removesuffix(_DETAILS),))
    return None


def _state(where: Whereabouts) -> Rank:
    def state(queue: AnyQueue) -> str:
        if queue.damaged is not None:
            return "crashed"
        away = type(queue) is QueueFront and queue.queue is None
        return "down" if away and not where.online(queue) else "running"

    return state


def _count(names: tuple[str, ...]) -> Rank:
    readers = [attrgetter(name) for name in names]

    def count(queue: AnyQueue) -> int:
        here = queue.queue if type(queue) is QueueFront else queue
        if isinstance(here, Queue):
            tally = here.tally
            return sum([read(tally) for read in readers])
        return published(here) if here is not None and "publish" in names else 0  # type: ignore[arg-type]

    return count


def _rate(sampler: Sampler, names: tuple[str, ...]) -> Rank:
    """By how much it changed between the last two samples."""
    tick = sampler.tick
    changed = {uid: series for uid, series in sampler.queues() if series.last_tick >= tick}
    places = [QUEUE_FIELDS.index(name) for name in names]
    counted = all(name in COUNTED for name in names)

    def rate(queue: AnyQueue) -> int:
        series = changed.get(queue.uid)
        if series is None:
            return 0
        now, before = series.at((tick, tick - 1))
        if now is None or (before is None and not counted):
            return 0
        total = sum([now[place] for place in places])
        return total if before is None else total - sum([before[place] for place in places])

    return rate


def _idleness(sampler: Sampler) -> Rank:
    """Ticks; what is not idle comes first, as what has no such field does."""
    tick, last = sampler.tick, {uid: series.last_tick for uid, series in sampler.queues()}

    def idleness(queue: AnyQueue) -> int:
        found = last.get(queue.uid, tick)
        return 0 if found >= tick else found

    return idleness
