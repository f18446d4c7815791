"""The groups of a vhost as participants of transactions: at their coordinator, or asked for there.

Only a node that has the groups, and has read all of them, can say that a decision is carried out,
or that there is no such group; any other answers that it must be asked again. What a group holds
for a transaction that has ended is let go of in time, so that no lost word leaves it stuck.

request   CBOR ["prepare", transaction, [producer, epoch, sequence], part]
          CBOR ["mark", group, settled, [marker, …]]
answer    CBOR: the vote's text, or the number of the last decision carried out; null: ask again
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import cbor2

from broker.streams.group_book import GroupBook
from queues.stream.names import GroupId
from queues.stream.participant import GroupPart, TransactionKey, Vote
from queues.stream.staged_entries import marker_of, marker_row
from queues.stream.transaction_commands import Mark, Prepare, part_row, parts_of

# A vote, or the last decision that is carried out. None: another node has the groups now.
Answer: TypeAlias = Vote | int | None
AnswerThen: TypeAlias = Callable[[Answer], None]

# Between looks at what groups hold; a transaction that is being decided takes seconds.
SWEEP_MS: Final = 10_000


class GroupsElsewhere(Protocol):
    """The way to the node that has the groups of a vhost."""

    def ask(self, vhost: str, body: bytes, then: Callable[[bytes | None], None]) -> None:
        """`then` gets the answer of `GroupParticipant.handle` there, or None if none will come."""
        ...


class GroupParticipant:
    """For the loop's thread."""

    def __init__(
        self,
        vhost: str,
        book: GroupBook,
        elsewhere: GroupsElsewhere | None,
        knows: Callable[[int], bool],
    ) -> None:
        """`knows`: whether a transaction may be unfinished, by this node's coordinator."""
        self._vhost = vhost
        self._book = book
        self._elsewhere = elsewhere
        self._knows = knows
        self._sweeping = False
        book.on_loaded = self._sweep

    def prepare(self, effect: Prepare, then: AnswerThen) -> None:
        row = part_row(effect.part)
        if not self._is_elsewhere(["prepare", effect.transaction, list(effect.key), row], then):
            self._book.when_ready(lambda: self._prepare(effect, then))

    def mark(self, effect: Mark, then: AnswerThen) -> None:
        assert isinstance(effect.participant, GroupId)
        markers = [marker_row(each) for each in effect.markers]
        body = ["mark", effect.participant.name, effect.settled, markers]
        if not self._is_elsewhere(body, then):
            self._book.when_ready(lambda: self._mark(effect, then))

    def _is_elsewhere(self, body: list[Any], then: AnswerThen) -> bool:
        if self._book.leads or self._elsewhere is None:
            return False

        def answered(answer: bytes | None) -> None:
            found = None if answer is None else cbor2.loads(answer)
            then(Vote(found) if isinstance(found, str) else found)

        self._elsewhere.ask(self._vhost, cbor2.dumps(body), answered)
        return True

    def handle(self, body: bytes, answer: Callable[[bytes], None]) -> None:
        """What another node asks for."""

        def then(found: Answer) -> None:
            answer(cbor2.dumps(found.value if isinstance(found, Vote) else found))

        if not self._book.leads:
            then(None)
            return
        match cbor2.loads(body):
            case ["prepare", transaction, key, row]:
                (part,) = parts_of([row])
                effect = Prepare(part.participant, transaction, TransactionKey(*key), part)
                self._book.when_ready(lambda: self._prepare(effect, then))
            case ["mark", group, settled, rows]:
                markers = tuple(marker_of(*row) for row in rows)
                mark = Mark(GroupId(group), markers, settled)
                self._book.when_ready(lambda: self._mark(mark, then))

    def _can_know(self) -> bool:
        """After the groups were waited for: this node may have ceased to have them meanwhile."""
        return self._book.leads and self._book.trouble is None

    def _prepare(self, effect: Prepare, then: AnswerThen) -> None:
        part, book = effect.part, self._book
        assert isinstance(part, GroupPart)
        if not self._can_know():
            then(None)
            return
        known = all(book.partition(each) is not None for each in part.positions)
        name = part.group.name
        group = book.group(name) if not part.member else book.groups.get(name)
        if group is None or not known:
            then(Vote.FENCED)
            return
        vote = group.prepare(effect.transaction, part, book.now_ms())
        book.changed(group, lambda: then(vote), lambda: then(None))
        self._sweep_later()

    def _mark(self, effect: Mark, then: AnswerThen) -> None:
        assert isinstance(effect.participant, GroupId)
        if not self._can_know():
            then(None)
            return
        group = self._book.groups.get(effect.participant.name)
        if group is None:
            self._mark_nobody(effect.participant.name, effect, then)
        else:
            group.mark(effect.markers)
            decided = group.decided
            self._book.changed(group, lambda: then(decided), lambda: then(None))

    def _mark_nobody(self, name: str, effect: Mark, then: AnswerThen) -> None:
        """There is no such group, unless another node has the groups without a word to this one."""

        def passed(error: Exception | None) -> None:
            if error is None and self._can_know() and name not in self._book.groups:
                then(effect.markers[-1].number if effect.markers else 0)
            else:
                then(None)

        if self._book.barrier is None:
            passed(None)
        else:
            self._book.barrier(passed)

    # What is held for nobody

    def _sweep_later(self) -> None:
        if not self._sweeping and any(group.held for group in self._book.groups.values()):
            self._sweeping = True
            self._book.call_in(SWEEP_MS, self._swept)

    def _swept(self) -> None:
        self._sweeping = False
        self._sweep()

    def _sweep(self) -> None:
        """Let go of parts of transactions that are finished: of a prepare that came too late."""
        if not self._can_know():
            return
        for group in list(self._book.groups.values()):
            ended = [each for each in group.held if not self._knows(each)]
            for transaction in ended:
                group.forget(transaction)
            if ended:
                self._book.changed(group)
        self._sweep_later()
