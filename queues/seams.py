"""What surrounds a queue, as the queue sees it: the broker, its storage, whoever published."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from queues.bell import Clock
from queues.burials import Grave
from queues.commands import Due, Id
from queues.message import Message
from queues.publishers import Note, Origin
from queues.ready import Ready

if TYPE_CHECKING:
    from queues.declared import Options
    from queues.queue import Queue


class Context(Clock, Grave, Protocol):
    """What a queue asks of the broker around it."""

    def queue_unused(self, queue: "Queue") -> None: ...


class AnyQueue(Protocol):
    """A queue of any type, as far as names, bindings, policies and definitions go."""

    name: str
    uid: bytes
    policy: str | None
    operator_policy: str | None
    settings: Mapping[str, object]  # arguments altered since it was declared
    damaged: str | None
    arguments: Mapping[str, object]

    @property
    def options(self) -> "Options": ...
    @property
    def durable(self) -> bool: ...
    @property
    def auto_delete(self) -> bool: ...
    @property
    def owner(self) -> object | None: ...
    @property
    def ready(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...
    @property
    def unacked(self) -> int: ...
    @property
    def consumer_count(self) -> int: ...
    @property
    def is_reachable(self) -> bool:
        """Whether what it refuses now is refused by its limits, and not for a fault."""
        ...

    def publish(self, messages: list[Message], receipt: "Receipt | None") -> None: ...
    def configure(self, options: Any) -> None:
        """Do as these options, which are of its own type, say from now on."""
        ...

    def touch(self) -> None: ...
    def damage(self, reason: str) -> None: ...
    def stop(self) -> None: ...
    def delete(self) -> int: ...


class Receipt(Protocol):
    """Told by each queue of a publish when its messages are safe, or which of them it refuses."""

    def stored(self, refused: list[Message]) -> None: ...


class Partly:
    """The receipt of a batch of which some messages were refused before the rest was stored."""

    __slots__ = ("_receipt", "_refused")

    def __init__(self, receipt: Receipt, refused: list[Message]) -> None:
        self._receipt = receipt
        self._refused = refused

    def stored(self, refused: list[Message]) -> None:
        self._receipt.stored(self._refused + refused)


class Once:
    """The receipt of nothing: tells that all which came before it is safe."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def stored(self, refused: list[Message]) -> None:  # noqa: ARG002 - there is none
        self._then()


class Store(Protocol):
    """Makes a queue durable. Messages come back through `Queue.enqueued` once they are safe."""

    @property
    def next_sequence(self) -> int: ...

    pending: int  # messages handed over and not yet ready, without delayed ones
    kept: int  # entries that were proposed here and are in the log, for good

    @property
    def said(self) -> int:
        """What `kept` is when the log has all that became of deliveries so far."""
        ...

    @property
    def ready(self) -> Ready: ...

    # What happens to messages

    def enqueue(
        self,
        messages: list[Message],
        receipt: Receipt | None,
        delayed: Sequence[Message] = (),
        ids: Sequence[Id] = (),
        note: Note | None = None,
    ) -> None: ...
    def repeats(self, origin: Origin, messages: list[Message], receipt: Receipt | None) -> bool: ...
    def claim(
        self, sequences: Iterable[int], known: Mapping[int, Message], *, returned: bool
    ) -> list[Message]: ...
    def block_claimed(self, sequences: list[int]) -> None: ...
    def fill(self, stand_ins: list[Message], then: Callable[[], None]) -> None: ...
    def settle(self, messages: list[Message]) -> None: ...
    def settle_sequences(self, sequences: list[int]) -> None: ...
    def give_back(self, messages: list[Message]) -> None: ...
    def delivered(self, step: int) -> None:
        """Some were; about so many that the log does not know of are too many for a crash."""
        ...

    def delay(self, delays: list[Due]) -> None: ...
    def overdue(self, sequences: list[int]) -> None: ...
    def purge(self) -> int: ...

    # What is known of them

    def due_of(self, sequence: int) -> int | None: ...
    def is_live(self, sequence: int) -> bool: ...
    def seen(self, digest: bytes, now_ms: int) -> bool: ...
    def read(self, sequences: Iterable[int], then: Callable[[list[Message]], None]) -> None: ...
    def cold_after(self, sequence: int, count: int) -> list[int]: ...
    def take_apart(self, message: Message) -> bool: ...

    # The life of the queue

    @property
    def is_loading(self) -> bool: ...
    def refill(self) -> None: ...
    def under_way(self) -> Iterable[Message]: ...
    def reorder(self, hot: Ready, *, in_order: bool, grouped: bool) -> None: ...
    def mark_clean_stop(self) -> None: ...
    def confirm(self, then: Callable[[bool], None]) -> None: ...
    def retire(self) -> None: ...
    def close(self) -> list[Receipt]: ...
