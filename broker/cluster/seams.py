"""What vhosts and channels ask of the replicated definitions, and what those ask of a queue."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from broker.cluster.placement import Load, Placement
from broker.protocol.errors import ChannelError
from broker.routes import Target
from queues.declared import Options
from queues.raft.messages import NodeId
from queues.seams import AnyQueue

# Whose exclusive queue it is: node, boot number of that node, number of the connection there.
Owner: TypeAlias = tuple[NodeId, int, int]
Change: TypeAlias = Sequence[object]  # see broker.journal
Result: TypeAlias = ChannelError | None
Then: TypeAlias = Callable[[Result], None]


class Definitions(Protocol):
    """The catalog, as a vhost and its channels see it.

    `then` is called once, in the loop's thread, perhaps before the call returns.
    """

    def request(
        self, change: Change, then: Then = lambda _: None, *, lasting: bool = False
    ) -> None:
        """Have every node make this change. `then` gets what became of it (None: done).

        Without a quorum that is ChannelError 506, and the change may still be made later. A
        `lasting` request is repeated until it is done instead. Raises ChannelError where the
        change cannot be stored.
        """

    def read(self, then: Then) -> None:
        """Call back when this node knows every change that was answered anywhere before now."""

    def owner_of(self, link: object) -> Owner | None:
        """What names a connection within the cluster, if it has claimed an exclusive queue."""

    def claim(self, link: object) -> Owner:
        """The same for one that is about to: its queues are looked after from now on."""

    def forget_owner(self, link: object, then: Callable[[], None] = lambda: None) -> None:
        """The connection ended: its exclusive queues go. `then` when they are gone everywhere."""

    def place(
        self,
        options: Options,
        arguments: Mapping[str, object],
        *,
        lasting: bool,
        planned: Load | None = None,
    ) -> Placement:
        """Where a new queue should live. One that is not `lasting` lives here.

        `planned` is what was placed just before, and may not be there yet.
        """

    def members(self) -> Sequence[NodeId]:
        """The nodes of the cluster that stay."""


class RepliesElsewhere(Protocol):
    """Direct replies to requesters on other nodes (broker.cluster.replies.Replies)."""

    @property
    def prefix(self) -> str:
        """What addresses of this node begin with."""

    def find(self, vhost: str, address: str) -> Target | None:
        """Takes replies for a requester elsewhere; None if there is no such node."""

    def ask(self, vhost: str, address: str, then: Callable[[bool], None]) -> None:
        """Whether anybody takes replies there, on another node."""


class Front(AnyQueue, Protocol):
    """A queue somewhere in the cluster, as definitions and channels use it on each node."""

    placement: Placement

    def placed(self, placement: Placement) -> None:
        """Its members changed in the definitions (see broker.cluster.members)."""

    def when_published(self, then: Callable[[], None]) -> None:
        """Call back when all that was published here so far is in the queue, or was refused."""

    def counts(self, then: Callable[[int, int], None]) -> None:
        """Ready messages and consumers, as its leader knows them; zeros where nobody answers."""

    def purge(self, then: Callable[[int | ChannelError], None]) -> None:
        """Drop ready messages; how many they were, once that is safe."""

    def check_delete(
        self, *, if_unused: bool, if_empty: bool, then: Callable[[int | ChannelError], None]
    ) -> None:
        """Whether it may be deleted now: the number of messages, or why not.

        Who comes between this and the deletion is not kept out: it goes with the queue.
        """


class MakeFront(Protocol):
    """Makes the queue object of this node for a queue of the cluster. It is not started yet."""

    def __call__(
        self,
        name: str,
        uid: bytes,
        options: Options,
        arguments: Mapping[str, Any],
        *,
        durable: bool,
        auto_delete: bool,
        owner: Owner | None,
        placement: Placement,
    ) -> AnyQueue: ...
