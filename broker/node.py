"""What the connections of a node share: settings, users, vhosts, timers, the flush of a turn."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker import logs
from broker.churn import Churn
from broker.config import Config
from broker.global_parameters import GlobalParameters
from broker.internal_errors import CLUSTER, CONNECTION, FLUSH, InternalErrors
from broker.registry.state import Schemas
from broker.security.limits import Headcount
from broker.security.login import Doorkeeper
from broker.security.registry import Registry
from broker.security.seeding import seeds
from broker.security.tokens import Tokens
from broker.security.user import User
from broker.statistics import NodeStatistics, StorageStatistics
from broker.timers import Timers
from broker.vhost import VHost
from flow_control.kept_back import KeptBack
from flow_control.memory import limit_bytes
from queues.tally import Tally

if TYPE_CHECKING:
    from broker.cluster.seams import Definitions
    from broker.journal import Journal

# A look at memory takes some twenty microseconds; it is worth that when so much has come.
LOOK_BYTES: Final = 4 * 1024 * 1024

_log = logs.get("node")


class Member(Protocol):
    """A connection, as the node sees it."""

    name: str

    def flush(self) -> None: ...
    def fail(self) -> None:
        """End it: something of ours went wrong that was its own business."""

    def unblocked(self) -> None: ...
    def expel(self, what: "User | VHost", reason: str) -> None:
        """End it, with these words, if it is this user's or in this vhost."""


class Keeper(Protocol):
    """What has something of each vhost."""

    def attach(self, vhost: VHost) -> None:
        """A vhost was made."""

    def detach(self, vhost: VHost) -> None:
        """It is deleted: nobody is in it any more."""


class Disk(Protocol):
    """The host of the node's logs."""

    @property
    def overloaded(self) -> bool: ...
    def flush(self) -> None: ...
    def relief(self) -> Awaitable[None]: ...
    def relieve(self) -> None: ...


class Others(Protocol):
    """The other nodes of a cluster."""

    def gather(self) -> None:
        """A turn ends: say what there is to say to them."""

    def send(self) -> None:
        """Let it go out."""

    def alarms_changed(self) -> None: ...


class Node:
    """The node's state. Nothing here awaits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.errors = InternalErrors()
        self.timers = Timers(self.errors)
        self.churn = Churn()
        self.global_parameters = GlobalParameters()
        self.schemas = Schemas()
        self.past = Tally()  # of channels that are closed
        self.past_received_bytes = 0  # from connections that are closed
        self.past_sent_bytes = 0
        self.vhosts: dict[str, VHost] = {}
        self.keepers: list[Keeper] = []  # of vhosts, in the order in which they are told of one
        self.registry = Registry(self.vhosts, self)
        self.doorkeeper = Doorkeeper(
            self.registry.users,
            loopback_users=config.loopback_users,
            failure_delay_s=config.auth_failure_delay_s,
        )
        self.tokens = Tokens(self.timers.now_ms)
        self.headcount = Headcount()
        self.journal: Journal | None = None  # of definitions, on a node that stands alone
        self.catalog: Definitions | None = None  # of those of a cluster
        self.host: Disk | None = None
        self.others: Others | None = None  # in a cluster
        self.storage: Callable[[], StorageStatistics] | None = None
        self.connections: set[Member] = set()
        self.dirty: list[Member] = []
        self.plain_properties: set[bytes] = set()  # see broker.channel.inspection
        self.blocked: str | None = None  # why nobody may publish now
        self.kept_back = KeptBack()  # of what publishers sent
        self.memory_limit_bytes = limit_bytes(config.memory_limit)
        self.memory_used_bytes = 0  # at the last look
        self.paging = False  # memory is so short that messages go to disk
        self.look_at_memory: Callable[[], object] = lambda: None
        self._unseen_bytes = 0  # received since memory was looked at
        self._alarms: dict[str, str] = {}  # what is short, and the words for it
        self.stopping = False

    # Users and vhosts

    def seed(self) -> None:
        """Make what the configuration has, and was never made before."""
        for change in seeds(self.config, self.registry):
            self.registry.apply(change)

    def open_vhost(self, name: str, uid: bytes = b"", members: tuple[int, ...] = ()) -> VHost:
        vhost = VHost(name, self.timers, queues_max=self.config.queues_max)
        vhost.uid, vhost.members = uid, members
        vhost.churn = self.churn
        vhost.is_short_of_memory = self._is_short_of_memory
        self.vhosts[name] = vhost
        for keeper in self.keepers:
            keeper.attach(vhost)
        return vhost

    def _is_short_of_memory(self) -> bool:
        """Here, or on another node."""
        return any(name.partition("@")[0] == "memory" for name in self._alarms)

    def drop_vhost(self, name: str) -> None:
        """End it, with all that is in it."""
        vhost = self.vhosts[name]
        self._expel(vhost, f"vhost '{name}' is deleted")
        for keeper in reversed(self.keepers):
            keeper.detach(vhost)
        vhost.close()
        del self.vhosts[name]

    def members(self) -> list[int]:
        """The nodes that have a part of a vhost that is made now; none without a cluster."""
        return list(self.catalog.members()) if self.catalog is not None else []

    def user_gone(self, user: User) -> None:
        self._expel(user, f"user '{user.name}' is deleted")
        for vhost in self.vhosts.values():
            vhost.forget_user(user)

    def _expel(self, what: User | VHost, reason: str) -> None:
        for connection in list(self.connections):
            try:
                connection.expel(what, reason)
            except Exception as error:  # noqa: BLE001 - the others are to go as well
                self.fail(connection, CONNECTION, error)

    def statistics(self) -> NodeStatistics:
        return NodeStatistics(
            alarms=dict(self._alarms),
            memory_used_bytes=self.memory_used_bytes,
            memory_limit_bytes=self.memory_limit_bytes,
            paging=self.paging,
            kept_back_bytes=self.kept_back.used_bytes,
            kept_back_bytes_max=self.kept_back.limit_bytes,
            connections=len(self.connections),
            queues=sum([len(vhost.queues) for vhost in self.vhosts.values()]),
            storage=self.storage() if self.storage is not None else None,
        )

    def flush(self) -> None:
        """At the end of every turn: start writing what must be durable, send what was written."""
        others = self.others
        if others is not None:
            self._tell(others.gather)
        if self.host is not None:
            self.host.flush()
        if others is not None:
            self._tell(others.gather)
            self._tell(others.send)
        dirty = self.dirty
        while dirty:
            member = dirty.pop()
            try:
                member.flush()
            except Exception as error:  # noqa: BLE001 - it is the business of this member alone
                self.fail(member, FLUSH, error)

    def fail(self, member: Member, where: str, error: Exception) -> None:
        """An internal error was met while a member was served: that one ends, no other."""
        self.errors.note(where, error, peer=member.name)
        with self.errors.guard(where, peer=member.name):
            member.fail()

    def _tell(self, say: Callable[[], None]) -> None:
        try:
            say()
        except Exception as error:  # noqa: BLE001 - clients and the log have no part in it
            self.errors.note(CLUSTER, error)

    def received(self, size_bytes: int) -> None:
        """From clients. Memory is looked at in between if much comes in one pass of the loop."""
        self._unseen_bytes += size_bytes
        if self._unseen_bytes >= LOOK_BYTES:
            self._unseen_bytes = 0
            self.look_at_memory()

    @property
    def alarms(self) -> dict[str, str]:
        """What is short, and the words for it; of other nodes, as name@node."""
        return dict(self._alarms)

    def raise_alarm(self, name: str, reason: str) -> None:
        """Keep publishes back, and nothing else, until the last alarm is over."""
        _log.warning("alarm", name=name, reason=reason)
        self._alarms[name] = reason
        self.blocked = reason
        if self.others is not None:
            self.others.alarms_changed()
        if self.host is not None:
            self.host.relieve()  # what comes is kept back now, so that all may be read again

    def clear_alarm(self, name: str) -> None:
        _log.info("alarm_over", name=name)
        self._alarms.pop(name, None)
        self.blocked = next(iter(self._alarms.values()), None)
        if self.others is not None:
            self.others.alarms_changed()
        if self.blocked is None:
            for connection in list(self.connections):
                try:
                    connection.unblocked()
                except Exception as error:  # noqa: BLE001 - the others are to hear of it as well
                    self.fail(connection, CONNECTION, error)
            self.flush()
