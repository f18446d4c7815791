"""Read for a group, transform, write to streams, exactly once: the plan of both clients.

What is made of a batch and the offset behind it are one transaction. So a batch whose output is
visible is never read again, and one that is read again has no output: whoever dies or is replaced
in between. The group refuses offsets of a member that does not have the partition any more, and
with them the output.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from clients.stream_group_core import GroupCore, Polled
from clients.stream_plans import Again, Alone, Call, Plan
from clients.stream_questions import partition_counts
from clients.stream_transaction_core import Staging, TransactionsCore

# Nothing of it is visible, nor will be: the batch is to be done again.
_UNDONE: Final = (Status.TRANSACTION_ABORTED, Status.STAGED_OUT_OF_ORDER)


def name_of_transactions(group: str, instance: str) -> str:
    """Each member needs one of its own. That of an instance also ends what it left behind."""
    return f"{group}/{instance or uuid.uuid4().hex}"


class Processing:
    def __init__(
        self,
        group: GroupCore,
        name: str,
        targets: Iterable[str],
        *,
        poll: Callable[[], Any],
        handle: Callable[[Polled, Staging], Any],
    ) -> None:
        """`poll` gives a batch, or None when it is enough; `handle` stages what is made of it."""
        self._group = group
        self._targets = tuple(targets)
        self._poll = poll
        self._handle = handle
        self._transactions = TransactionsCore(name)
        self._staging: Staging | None = None

    def run(self) -> Plan[None]:
        yield from self._transactions.open()
        counts = yield from partition_counts(self._targets) if self._targets else _nothing()
        failures = 0
        while (batch := (yield Call(self._poll))) is not None:
            try:
                yield from self._do(batch, counts)
            except RefusedError as error:
                if error.status not in _UNDONE:
                    raise
                problem = error
            else:
                failures = 0
                continue
            if problem.status == Status.TRANSACTION_ABORTED:
                self._staging = None  # dropped with it
            yield from self.abandon()
            yield from self._group.heartbeat()  # to hear at once if it is out of the group
            yield from self._group.rewind()
            yield Again(failures, problem)
            failures += 1

    def abandon(self) -> Plan[None]:
        """Drop what is staged and will not be committed."""
        staging, self._staging = self._staging, None
        if staging is not None and staging.parts():
            yield from self._transactions.abort(staging.key, staging.parts())

    def _do(self, batch: Polled, counts: dict[str, int]) -> Plan[None]:
        key = yield from self._transactions.begin()
        staging = self._staging = Staging(key, counts)
        yield Call(self._handle, (batch, staging))
        yield from staging.finish()
        offset = {batch.partition: batch.next_offset}
        yield Alone(commit_with(self._transactions, staging, self._group, offset))
        self._staging = None


def commit_with(
    transactions: TransactionsCore,
    staging: Staging,
    group: GroupCore,
    positions: dict[wire.Partition, int] | None = None,
) -> Plan[wire.Committed]:
    """Rows and offsets together. Alone, since no heartbeat may tell of a new generation before."""
    parts = [group.part(positions)]
    return (yield from transactions.commit(staging.key, staging.parts(), parts))


def _nothing() -> Plan[dict[str, int]]:
    """To be asked of no stream."""
    yield from ()
    return {}
