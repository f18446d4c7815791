"""Transactions as the stream protocol asks for them: each vhost has its own."""

from collections.abc import Callable, Mapping
from typing import Final

from broker.log_host import LogHost
from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import CorruptChunkError
from broker.protocol.stream_wire import STAGED_BY_OTHERS, Refused, Status
from broker.streams.group_book import Barrier, at_once
from broker.streams.group_host import GroupHost, positions_of
from broker.streams.group_participant import GroupsElsewhere
from broker.streams.records import find_stream
from broker.streams.service import Caller, Then
from broker.streams.transaction_book import Join, TransactionBook
from broker.vhost import VHost
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import GroupPart, Part, PartitionPart, TransactionKey, WriterRows
from queues.stream.staged_rows import STAGED_BYTES_MAX, Answer, Lost
from queues.stream.staging import Share, StageAnswer
from queues.stream.stream import Stream
from queues.stream.transaction_commands import (
    Abort,
    Aborted,
    Commit,
    Committed,
    Opened,
    Outcome,
    Refusal,
)
from queues.stream.transaction_commands import Refused as Rejected

NAME_BYTES_MAX: Final = 255  # of producers and writers: many of them are kept
SEQUENCE_MAX: Final = 2**63 - 1

REFUSAL_STATUS: Final[Mapping[Refusal, Status]] = {
    Refusal.FENCED: Status.TRANSACTION_FENCED,
    Refusal.PASSED: Status.TRANSACTION_PASSED,
    Refusal.BUSY: Status.TRANSACTION_BUSY,
    Refusal.FULL: Status.TOO_MANY_TRANSACTIONS,
    Refusal.MALFORMED: Status.TRANSACTION_MALFORMED,
}
_STAGED: Final[Mapping[StageAnswer, wire.Staged | Refused]] = {
    StageAnswer.STAGED: wire.Staged(duplicate=False),
    StageAnswer.DUPLICATE: wire.Staged(duplicate=True),
    StageAnswer.OUT_OF_ORDER: Refused(Status.STAGED_OUT_OF_ORDER, StageAnswer.OUT_OF_ORDER.value),
}

SHARES_NAMED: Final = 3  # of those who have something staged, where there is no room for more

_GONE: Final = Refused(Status.VHOST_REFUSED, "the vhost was deleted")


class TransactionHost:
    """The part of `StreamService` that is about transactions. For the loop's thread."""

    def __init__(
        self,
        node: Node,
        groups: GroupHost,
        host: LogHost,
        *,
        lost_logs: bool,
        join: Join | None = None,
        elsewhere: GroupsElsewhere | None = None,
        definitions: Barrier = at_once,
    ) -> None:
        """In a cluster: `join` for its logs, `elsewhere` is the way to the groups' nodes.

        `definitions` says when this node knows of every stream that there is.
        """
        self._definitions = definitions
        self._node = node
        self._groups = groups
        self._host = host
        self._lost_logs = lost_logs
        self._join = join
        self._elsewhere = elsewhere
        self._started = False
        self._books: dict[str, TransactionBook] = {}
        for vhost in node.vhosts.values():
            self.attach(vhost)

    def attach(self, vhost: VHost) -> None:
        book = self._books[vhost.name] = TransactionBook(
            vhost,
            self._node.timers,
            self._groups.books[vhost.name],
            self._host,
            lost_logs=self._lost_logs and not self._started,
            join=self._join,
            elsewhere=self._elsewhere,
            definitions=self._definitions,
        )
        if self._started:
            book.start()

    def detach(self, vhost: VHost) -> None:
        self._books.pop(vhost.name).close()

    def handle_group(self, vhost: str, body: bytes, answer: Callable[[bytes], None]) -> None:
        """What the coordinator of transactions on another node asks of this node's groups."""
        book = self._books.get(vhost)
        if book is not None:  # else nobody waits for the answer
            book.groups.handle(body, answer)

    def settled(self, vhost: str, stream: Stream) -> int:
        """Up to which decision the transactions of a stream are whole on this node."""
        return self._books[vhost].settled(stream)

    def start(self) -> None:
        """Go on with what is unfinished, once logs can be written and groups are being read."""
        self._started = True
        for book in self._books.values():
            book.start()

    def open_transactions(
        self, caller: Caller, request: wire.OpenTransactions, then: Then[wire.TransactionsOpened]
    ) -> None:
        book = self._books.get(caller.vhost)
        refused = _refusal(book, request.producer)
        if book is None or refused is not None:
            then(refused or _GONE)
            return

        def opened(answer: Outcome | Opened | Lost) -> None:
            if isinstance(answer, Lost):
                then(_moved(answer))
            elif isinstance(answer, Opened):
                then(wire.TransactionsOpened(answer.epoch, answer.last))
            else:
                assert isinstance(answer, Rejected), answer
                then(_refused(answer))

        book.open(_producer(caller, request.producer), opened)

    def stage(self, caller: Caller, request: wire.Stage, then: Then[wire.Staged]) -> None:
        book = self._books.get(caller.vhost)
        refused = _refusal(book, request.key.producer, request.writer)
        if refused is not None:
            then(refused)
            return
        stream = find_stream(self._node.vhosts, caller.vhost, request.stream)
        if isinstance(stream, Refused):
            then(stream)
            return
        if request.partition >= len(stream.partitions):
            text = f"stream '{stream.name}' has no partition {request.partition}"
            then(Refused(Status.PARTITION_NOT_FOUND, text))
            return

        def staged(answer: Answer) -> None:
            if answer is StageAnswer.FULL:
                size = len(request.chunk)
                then(_full(partition.staged.shares(), key, size, self._node.timers.now_ms()))
            elif isinstance(answer, StageAnswer):
                then(_STAGED[answer])
            elif isinstance(answer, Lost):
                then(_moved(answer))
            else:
                then(Refused(Status.STREAM_NOT_FOUND, f"stream '{stream.name}' was deleted"))

        key = _key(caller, request.key)
        partition = stream.partitions[request.partition]
        if not request.chunk:
            partition.staged.renew(key, staged)
            return
        try:
            partition.stage(key, request.writer, request.number, request.chunk, staged)
        except CorruptChunkError as error:
            then(Refused(Status.CORRUPT_CHUNK, str(error)))

    def commit(self, caller: Caller, request: wire.Commit, then: Then[wire.Committed]) -> None:
        def decided(outcome: Outcome | Lost) -> None:
            if isinstance(outcome, Lost):
                then(_moved(outcome))
            elif isinstance(outcome, Committed):
                then(wire.Committed(outcome.number, outcome.rows))
            else:
                then(_refused(outcome))

        book = self._books.get(caller.vhost)
        refused = _refusal(book, request.key.producer) or _bad_sequence(request.key)
        if book is None or refused is not None:
            then(refused or _GONE)
            return
        key = _key(caller, request.key)

        def ask() -> None:
            parts = _parts(request, book.uid_of)
            book.ask(key, Commit(key, parts, self._node.timers.now_ms()), decided)

        book.when_known((each.partition.stream for each in request.partitions), ask)

    def abort(self, caller: Caller, request: wire.Abort, then: Then[wire.Empty]) -> None:
        """What was committed stays so, and the answer is the same: whoever asks may forget it."""

        def decided(outcome: Outcome | Lost) -> None:
            if isinstance(outcome, Lost):
                then(_moved(outcome))
            else:
                then(_refused(outcome) if isinstance(outcome, Rejected) else wire.Empty())

        book = self._books.get(caller.vhost)
        refused = _refusal(book, request.key.producer) or _bad_sequence(request.key)
        if book is None or refused is not None:
            then(refused or _GONE)
            return
        key = _key(caller, request.key)
        parts = _parts(request, book.uid_of)
        book.ask(key, Abort(key, parts, self._node.timers.now_ms()), decided)


def _producer(caller: Caller, name: str) -> str:
    """The vhost has a book of its own; users must not fence each other's."""
    return f"{caller.user}\0{name}"


def owner_of(key: TransactionKey) -> tuple[str, str]:
    """The user, and the name that the producer has with it."""
    user, _, name = key.producer.partition("\0")
    return user, name


def _full(shares: list[Share], key: TransactionKey, size_bytes: int, now_ms: int) -> Refused:
    """Who has staged so much, as far as this node knows, if there is room without them."""
    text = StageAnswer.FULL.value
    others = [_described(share, now_ms) for share in shares if share.key != key]
    own_bytes = sum(share.size_bytes for share in shares if share.key == key)
    if others and own_bytes + size_bytes <= STAGED_BYTES_MAX:
        text += f"; {STAGED_BY_OTHERS}: {', '.join(others[:SHARES_NAMED])}"
        if len(others) > SHARES_NAMED:
            text += f" and {len(others) - SHARES_NAMED} more"
    return Refused(Status.STAGING_FULL, text)


def _described(share: Share, now_ms: int) -> str:
    size = f"{share.size_bytes} bytes"
    if share.key is None:
        return f"{size} of transaction {share.transaction}, which is being decided"
    user, name = owner_of(share.key)
    idle_s = max(0, now_ms - share.at_ms) // 1000
    return f"{size} of producer {name!r} of user {user!r}, untouched for {idle_s} s"


def _key(caller: Caller, key: wire.Key) -> TransactionKey:
    return TransactionKey(_producer(caller, key.producer), key.epoch, key.sequence)


def _refusal(book: TransactionBook | None, *names: str) -> Refused | None:
    if book is None:
        return _GONE
    if book.trouble is not None:
        return Refused(Status.UNAVAILABLE, f"transactions are damaged: {book.trouble}")
    if any(not name or len(name.encode()) > NAME_BYTES_MAX for name in names):
        text = f"names of producers and writers have 1 to {NAME_BYTES_MAX} bytes"
        return Refused(Status.TRANSACTION_MALFORMED, text)
    return None


def _moved(lost: Lost) -> Refused:
    return Refused(Status.UNAVAILABLE, f"{lost.value}: ask again")


def _bad_sequence(key: wire.Key) -> Refused | None:
    if key.sequence <= SEQUENCE_MAX:
        return None
    return Refused(Status.TRANSACTION_MALFORMED, f"sequence {key.sequence}")


def _refused(outcome: Aborted | Rejected) -> Refused:
    if isinstance(outcome, Aborted):
        return Refused(Status.TRANSACTION_ABORTED, outcome.reason)
    return Refused(REFUSAL_STATUS[outcome.refusal], outcome.refusal.value)


def _parts(request: wire.Commit | wire.Abort, uid_of: Callable[[str], bytes]) -> tuple[Part, ...]:
    partitions = [
        PartitionPart(
            PartitionId(*part.partition),
            tuple(WriterRows(*each) for each in part.writers),
            uid_of(part.partition.stream),
        )
        for part in request.partitions
    ]
    groups = [
        GroupPart(GroupId(part.group), part.member, part.generation, positions_of(part.positions))
        for part in request.groups
    ]
    return (*partitions, *groups)
