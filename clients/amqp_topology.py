"""What was declared through a connection, so that it can be had again on another one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pamqp.base import Frame
from pamqp.commands import Exchange, Queue

Arguments = dict[str, Any]


@dataclass(slots=True)
class DeclaredQueue:
    """A queue as the broker has it. A name that the broker chose may change with a reconnect."""

    name: str
    message_count: int = 0
    consumer_count: int = 0

    def __str__(self) -> str:
        return self.name


class Step(NamedTuple):
    """One request that brings something back; of a queue also where its name is kept."""

    kind: type[Frame]
    answer: type[Frame]
    arguments: Arguments
    queue: DeclaredQueue | None = None


@dataclass(slots=True)
class _QueueRecord:
    handle: DeclaredQueue
    arguments: Arguments
    named_by_broker: bool


@dataclass(slots=True)
class Topology:
    """Passive declarations are questions and not remembered; what is deleted is forgotten."""

    _exchanges: dict[str, Arguments] = field(default_factory=dict)
    _queues: dict[str, _QueueRecord] = field(default_factory=dict)
    _bindings: list[tuple[type[Frame], Arguments]] = field(default_factory=list)

    def queue_declared(self, handle: DeclaredQueue, arguments: Arguments) -> DeclaredQueue:
        """Returns the handle of the first declaration, which is the one that stays right."""
        known = self._queues.get(handle.name)
        if known is not None:
            known.handle.message_count = handle.message_count
            known.handle.consumer_count = handle.consumer_count
            return known.handle
        self._queues[handle.name] = _QueueRecord(handle, arguments, not arguments["queue"])
        return handle

    def queue_deleted(self, name: str) -> None:
        self._queues.pop(name, None)
        self._bindings = [
            (kind, arguments)
            for kind, arguments in self._bindings
            if kind is not Queue.Bind or str(arguments["queue"]) != name
        ]

    def exchange_declared(self, arguments: Arguments) -> None:
        self._exchanges[arguments["exchange"]] = arguments

    def exchange_deleted(self, name: str) -> None:
        self._exchanges.pop(name, None)
        self._bindings = [
            (kind, arguments)
            for kind, arguments in self._bindings
            if name not in (arguments.get("exchange"), arguments.get("source"))
            and name != arguments.get("destination")
        ]

    def bound(self, kind: type[Frame], arguments: Arguments) -> None:
        """`queue` in the arguments may be a handle, whose name may change."""
        if kind is Queue.Bind:
            known = self._queues.get(str(arguments["queue"]))
            if known is not None:
                arguments = {**arguments, "queue": known.handle}
        if (kind, arguments) not in self._bindings:
            self._bindings.append((kind, arguments))

    def unbound(self, kind: type[Frame], arguments: Arguments) -> None:
        """`kind` is that of the binding, not of its end."""
        wanted = {name: _plain(value) for name, value in arguments.items()}
        self._bindings = [
            (each, had)
            for each, had in self._bindings
            if each is not kind or {name: _plain(value) for name, value in had.items()} != wanted
        ]

    def steps(self) -> Iterator[Step]:
        """In the order in which they depend on each other; names are read as each is reached."""
        for arguments in self._exchanges.values():
            yield Step(Exchange.Declare, Exchange.DeclareOk, arguments)
        for record in self._queues.values():
            name = "" if record.named_by_broker else record.handle.name
            arguments = {**record.arguments, "queue": name}
            yield Step(Queue.Declare, Queue.DeclareOk, arguments, record.handle)
        for kind, arguments in self._bindings:
            answer = Queue.BindOk if kind is Queue.Bind else Exchange.BindOk
            plain = {name: _plain(value) for name, value in arguments.items()}
            yield Step(kind, answer, plain)

    def renamed(self) -> None:
        """Queues are known under the names that they have now."""
        self._queues = {record.handle.name: record for record in self._queues.values()}


def _plain(value: object) -> object:
    return value.name if isinstance(value, DeclaredQueue) else value
