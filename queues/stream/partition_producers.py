"""The producer table as a partition asks it: chunks judged when they are applied."""

from collections.abc import Sequence
from typing import Final

from broker.protocol.chunk import Header, Producer
from queues.stream.producers import IDLE_MS, PRODUCERS_MAX, Answer, ProducerTable
from queues.stream.verdict import NEW, Ruling, Verdict

# A full table forgets those that wrote nothing for so long, to let others in: longer than a client
# goes on trying to send a chunk again.
CROWDED_IDLE_MS: Final = 15 * 60 * 1000

_VERDICTS: Final = {
    Answer.DUPLICATE: Verdict.DUPLICATE,
    Answer.OUT_OF_ORDER: Verdict.OUT_OF_ORDER,
    Answer.FENCED: Verdict.FENCED,
    Answer.FULL: Verdict.FULL,
}


class IdempotentProducers:
    """`Producers` of a partition in which nothing is ever hidden: staged rows are elsewhere."""

    def __init__(self) -> None:
        self._table = ProducerTable()

    def __len__(self) -> int:
        return len(self._table)

    def apply(self, header: Header, base_offset: int, at_ms: int) -> Ruling:
        producer = header.producer
        self._table.expire(at_ms - IDLE_MS)
        if producer is None or not header.records:
            return NEW
        if len(self._table) >= PRODUCERS_MAX:
            self._table.expire(at_ms - CROWDED_IDLE_MS)
        found = self._table.apply(*producer, header.records, offset=base_offset, at_ms=at_ms)
        if found.answer is Answer.ACCEPTED:
            return NEW
        return Ruling(_VERDICTS[found.answer], found.offset)

    def expected(self, producer: Producer) -> int:
        return self._table.check(*producer, 1).expected

    def first_unstable(self) -> int | None:
        return None

    def hidden(self, first: int, end: int) -> Sequence[tuple[int, int]]:  # noqa: ARG002
        return ()

    def forget_before(self, offset: int) -> None:
        """Whoever wrote what is gone may send it again all the same."""

    def checkpoint(self) -> bytes:
        return self._table.encode() if len(self._table) else b""

    def restore(self, state: bytes) -> None:
        self._table = ProducerTable.decode(state) if state else ProducerTable()
