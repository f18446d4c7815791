"""Gets the groups that this node leads to have the members, and the leader, that they should.

What should be is in the definitions, so that a step that was under way when a leader was lost is
taken by the next one. One step at a time: a learner is added, catches up, is promoted; only then an
old member is removed. Readers stay learners: they have all of a log, and nobody waits for them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from broker import logs
from broker.cluster.requests import Clock
from queues.raft.config import Config
from queues.raft.messages import NodeId

LOOK_MS: Final = 500  # between looks at groups that are not as they should be

_log = logs.get("keeper")

Then = Callable[[Exception | None], None]


class Member(Protocol):
    """This node's member of a group (`broker.hosted_log.MemberLog`)."""

    uid: bytes

    @property
    def leads(self) -> bool: ...
    @property
    def config(self) -> Config | None: ...
    def transfer(self, to: NodeId) -> None: ...
    def add_learner(self, node: NodeId, then: Then) -> None: ...
    def promote(self, node: NodeId, then: Then) -> None: ...
    def remove(self, node: NodeId, then: Then) -> None: ...


class Wish(NamedTuple):
    """How a group should be."""

    members: tuple[NodeId, ...]  # those that vote
    readers: tuple[NodeId, ...] = ()  # those that only follow
    leader: NodeId | None = None  # None: whoever it is
    shunned: frozenset[NodeId] = frozenset()  # must not lead
    # Called when the members are those, and when the leader is that one; whether that was news.
    settled: Callable[[], bool] = lambda: False
    led: Callable[[], bool] = lambda: False


class Keeper:
    """One per node. `groups` are those it has a member of, `wish_of` says how one should be."""

    def __init__(
        self,
        me: NodeId,
        clock: Clock,
        *,
        groups: Callable[[], Iterable[Member]],
        wish_of: Callable[[bytes], Wish | None],
        is_up: Callable[[NodeId], bool],
        leads: Callable[[], Mapping[NodeId, int]] = dict,
    ) -> None:
        self._me = me
        self._clock = clock
        self._groups = groups
        self._wish_of = wish_of
        self._is_up = is_up
        self._leads = leads  # how many groups each node leads
        self._busy: set[bytes] = set()  # groups with a step under way
        self._due: set[bytes] = set()  # groups to look at when the timer rings
        self._waiting = False

    def look(self) -> None:
        """Take the next step wherever there is one, and look again by itself until all is done.

        To be called when a node comes up, and when members have changed in the definitions
        (`Catalog.on_members`).
        """
        self._look_at(list(self._groups()))

    def led(self, uid: bytes) -> None:
        """This node begins to lead a group. Many begin at once when a node starts or is lost."""
        self._look_later([uid])

    def _look_at(self, groups: Iterable[Member]) -> None:
        again = []
        for group in groups:
            if group.leads and group.uid not in self._busy:
                wish = self._wish_of(group.uid)
                if wish is not None and self._step(group, wish):
                    again.append(group.uid)
        self._look_later(again)

    def _look_later(self, uids: Iterable[bytes]) -> None:
        self._due.update(uids)
        if self._due and not self._waiting:
            self._waiting = True
            self._clock.call_at(self._clock.now_ms() + LOOK_MS, self._look_again)

    def _look_again(self) -> None:
        self._waiting = False
        due, self._due = self._due, set()
        self._look_at([group for group in self._groups() if group.uid in due])

    def _step(self, group: Member, wish: Wish) -> bool:
        """Whether it is worth looking at again."""
        config = group.config
        assert config is not None, "who leads is sound"
        missing = [node for node in wish.members if node not in config.voters]
        for node in config.learners:
            if node not in wish.members and node not in wish.readers:
                return self._begin(group, "remove", node)
        for node in missing:
            if self._is_up(node):
                step = "promote" if node in config.learners else "add_learner"
                return self._begin(group, step, node)
        surplus = [node for node in config.voters if node not in wish.members]
        if surplus and not missing:
            others = [node for node in surplus if node != self._me]
            if others:
                return self._begin(group, "remove", others[0])
            return self._hand_over(group, wish)
        unread = [n for n in wish.readers if n not in config.voters and n not in config.learners]
        for node in unread:
            if self._is_up(node):
                return self._begin(group, "add_learner", node)
        news = not missing and wish.settled()
        if wish.leader == self._me:
            news = wish.led() or news
        elif wish.leader is not None or self._me in wish.shunned:
            return self._hand_over(group, wish)
        return bool(missing or unread) or news

    def _hand_over(self, group: Member, wish: Wish) -> bool:
        leads = self._leads()
        able = [
            node
            for node in (group.config.voters if group.config is not None else ())
            if node in wish.members and node != self._me and self._is_up(node)
        ]
        able.sort(key=lambda n: (n != wish.leader, n in wish.shunned, leads.get(n, 0), n))
        if able and (able[0] not in wish.shunned or self._me not in wish.members):
            group.transfer(able[0])
        return True

    def _begin(self, group: Member, step: str, node: NodeId) -> bool:
        uid = group.uid
        self._busy.add(uid)

        def done(error: Exception | None) -> None:
            self._busy.discard(uid)
            if error is None:
                _log.info("members", group=uid.hex(), step=step, node=node)
                self._look_at([group])

        getattr(group, step)(node, done)
        return True
