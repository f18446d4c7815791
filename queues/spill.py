"""Ready messages of a queue in memory while memory is short: the first stay, the rest is on disk.

       in memory          on disk             in memory
    returned │ hot │ chunk │ chunk │ … │ chunk │ tail
                                          push ──►

New messages join the tail, from which chunks are cut and written. A chunk comes back as a whole
when what is hot runs out. Nothing here survives a restart, and nothing has to.
"""

from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, Protocol

from queues.commands import decode_messages, encode_enqueue, split_commands
from queues.message import Message
from queues.paged import MESSAGE_OVERHEAD_BYTES
from queues.ready import FifoReady, Ready

# Stays in memory of every queue, so that each of many can begin to deliver at once.
HOT_BYTES: Final = 64 * 1024
# A chunk costs one hop to a thread each way: at least the smaller is worth that, and the larger is
# read back with little delay. What is too little for a chunk stays in the tail.
CHUNK_BYTES_MIN: Final = 64 * 1024
CHUNK_BYTES_MAX: Final = 512 * 1024
# While memory is not short, the next chunk is read when fewer messages than this are left.
LOW_MESSAGES: Final = 1024


class Spill(Protocol):
    """Where messages go. What was read comes later, never from within the call that asks for it."""

    @property
    def wanted(self) -> bool:
        """Memory is short, and there is room on disk."""
        ...

    def when_free(self, turn: Callable[[], None]) -> None:
        """Call back, each in turn, when one more write may be begun."""
        ...

    def write(self, data: bytes, then: Callable[[int | None], None]) -> None:
        """Tell the place at which the bytes are now, or None if there was no room."""
        ...

    def read(self, place: int, length: int, then: Callable[[bytes], None]) -> None: ...
    def free(self, place: int, length: int) -> None: ...


class _Chunk:
    """Messages in memory until they are written; then a place on disk."""

    __slots__ = ("count", "gone", "length", "messages", "place", "size_bytes")

    def __init__(self, messages: list[Message]) -> None:
        self.messages: list[Message] | None = messages
        self.count = len(messages)
        self.size_bytes = sum([m.body_bytes for m in messages])
        self.length = 0  # of what is written
        self.place: int | None = None
        self.gone = False  # taken or cleared while the disk was busy with it


class SpillingReady:
    """A `Ready` around another one, which keeps what is in memory and can be taken."""

    __slots__ = (
        "_chunks",
        "_cold",
        "_cold_bytes",
        "_hot",
        "_in_order",
        "_loaded",
        "_mark",
        "_reading",
        "_spill",
        "_tail",
        "_tail_cost",
        "_unwritten",
        "_waits",
    )

    def __init__(
        self, hot: FifoReady, spill: Spill, loaded: Callable[[list[Message]], None]
    ) -> None:
        self._hot: Ready = hot
        self._spill = spill
        self._loaded = loaded  # told what came back, when it can be taken
        self._mark: Callable[[list[Message]], None] | None = None
        self._in_order = True  # else the first to go may be anywhere, so that all comes back first
        self._chunks: deque[_Chunk] = deque()
        self._unwritten: deque[_Chunk] = deque()  # those of them that there was no room for
        self._tail: deque[Message] = deque()
        self._tail_cost = 0
        self._cold = 0  # messages in chunks and tail, and the size of their bodies
        self._cold_bytes = 0
        self._waits = False  # for its turn to write
        self._reading = False  # the first chunk

    def __len__(self) -> int:
        return len(self._hot) + self._cold

    def __iter__(self) -> Iterator[Message]:
        return iter(self._hot)

    @property
    def size_bytes(self) -> int:
        return self._hot.size_bytes + self._cold_bytes

    @property
    def available(self) -> int:
        """How many can be taken without waiting for the disk."""
        return 0 if self._is_incomplete else self._hot.available

    @property
    def is_loading(self) -> bool:
        """There are messages, but the first of them is still on its way from the disk."""
        return self._cold > 0 and not self.available

    @property
    def on_disk(self) -> int:
        """Messages that are not in memory."""
        return sum([chunk.count for chunk in self._chunks if chunk.messages is None])

    @property
    def _is_incomplete(self) -> bool:
        return self._cold > 0 and not self._in_order

    # In and out

    def push(self, messages: list[Message]) -> None:
        if self._cold:
            self._tail.extend(messages)
            size = sum([m.body_bytes for m in messages])
            self._tail_cost += size + MESSAGE_OVERHEAD_BYTES * len(messages)
            self._cold += len(messages)
            self._cold_bytes += size
            self._ask()
        else:
            self._hot.push(messages)
            self.page_out()

    def put_back(self, messages: list[Message]) -> None:
        self._hot.put_back(messages)

    def head(self) -> Message | None:
        return None if self._is_incomplete else self._hot.head()

    def oldest(self) -> Message | None:
        return None if self._is_incomplete else self._hot.oldest()

    def pop(self) -> Message:
        message = self._hot.pop()
        self._refill()
        return message

    def pop_oldest(self) -> Message:
        message = self._hot.pop_oldest()
        self._refill()
        return message

    def take(self, count: int, size_bytes: int) -> list[Message]:
        taken = self._hot.take(count, size_bytes)
        self._refill()
        return taken

    def remove(self, sequences: Collection[int]) -> list[Message]:
        """Only such as are hot."""
        removed = self._hot.remove(sequences)
        self._refill()
        return removed

    def first_fresh(self) -> int | None:
        return self._hot.first_fresh()

    def clear(self) -> None:
        self._hot.clear()
        for chunk in self._chunks:
            chunk.gone = True
            if chunk.place is not None and not (self._reading and chunk is self._chunks[0]):
                self._spill.free(chunk.place, chunk.length)
        self._chunks.clear()
        self._unwritten.clear()
        self._tail.clear()
        self._tail_cost = self._cold = self._cold_bytes = 0

    def reorder(self, hot: Ready, mark: Callable[[list[Message]], None], *, in_order: bool) -> None:
        """Keep messages in another order from now on, for which they are marked first."""
        hot.push(sorted(self._hot, key=lambda message: message.sequence))
        self._hot = hot
        self._mark = mark
        self._in_order = in_order
        self._refill()

    # To disk

    def page_out(self) -> None:
        """Begin to write what need not be in memory, if that is short."""
        if self._spill.wanted and not self._cold and self._in_order:
            cost = self._hot.size_bytes + MESSAGE_OVERHEAD_BYTES * len(self._hot)
            if cost >= HOT_BYTES + CHUNK_BYTES_MIN and isinstance(self._hot, FifoReady):
                before = self._hot.size_bytes
                self._tail = self._hot.split_off(HOT_BYTES, MESSAGE_OVERHEAD_BYTES)
                self._cold = len(self._tail)
                self._cold_bytes = before - self._hot.size_bytes
                self._tail_cost = self._cold_bytes + MESSAGE_OVERHEAD_BYTES * self._cold
        self._ask()

    def _ask(self) -> None:
        if self._is_worth_a_chunk and not self._waits:
            self._waits = True
            self._spill.when_free(self._write_chunk)

    @property
    def _is_worth_a_chunk(self) -> bool:
        enough = self._tail_cost >= CHUNK_BYTES_MIN or bool(self._unwritten)
        return enough and self._in_order and self._spill.wanted

    def _write_chunk(self) -> None:
        """It is this queue's turn: write what found no room before, or a new chunk."""
        self._waits = False
        if self._is_worth_a_chunk:
            chunk = self._unwritten.popleft() if self._unwritten else self._cut_chunk()
            if not chunk.gone and chunk.messages is not None:
                data = _encode(chunk.messages)
                chunk.length = len(data)
                self._spill.write(data, partial(self._written, chunk))
            self._ask()

    def _cut_chunk(self) -> _Chunk:
        messages: list[Message] = []
        cost = 0
        while self._tail and cost < CHUNK_BYTES_MAX:
            message = self._tail.popleft()
            messages.append(message)
            cost += message.body_bytes + MESSAGE_OVERHEAD_BYTES
        self._tail_cost -= cost
        chunk = _Chunk(messages)
        self._chunks.append(chunk)
        return chunk

    def _written(self, chunk: _Chunk, place: int | None) -> None:
        if place is None:
            self._unwritten.append(chunk)  # it stays in memory, in its place
        elif chunk.gone:
            self._spill.free(place, chunk.length)
        else:
            chunk.place = place
            chunk.messages = None

    # And back

    def _refill(self) -> None:
        """See to it that there is something to take, now or soon."""
        if self._cold and self._wants_more:
            while self._chunks and self._wants_more:
                chunk = self._chunks[0]
                if chunk.messages is None:
                    self._read_first(chunk)
                    return
                self._chunks.popleft()
                chunk.gone = True
                self._come_back(chunk, chunk.messages)
            if not self._chunks and self._tail:
                self._warm(list(self._tail))
                self._tail.clear()
                self._tail_cost = self._cold = self._cold_bytes = 0

    @property
    def _wants_more(self) -> bool:
        left = self._hot.available
        if not left or not self._in_order:
            return True
        return left < LOW_MESSAGES and not self._spill.wanted

    def _read_first(self, chunk: _Chunk) -> None:
        if not self._reading:
            assert chunk.place is not None
            self._reading = True
            self._spill.read(chunk.place, chunk.length, partial(self._read, chunk))

    def _read(self, chunk: _Chunk, data: bytes) -> None:
        self._reading = False
        assert chunk.place is not None
        self._spill.free(chunk.place, chunk.length)
        if not chunk.gone:
            assert self._chunks[0] is chunk
            self._chunks.popleft()
            messages = _decode(data, chunk.count)
            self._come_back(chunk, messages)
            self._refill()  # the tail, before anybody is told that there is nothing more
            self._loaded(messages)
        self._refill()

    def _come_back(self, chunk: _Chunk, messages: list[Message]) -> None:
        self._cold -= chunk.count
        self._cold_bytes -= chunk.size_bytes
        self._warm(messages)

    def _warm(self, messages: list[Message]) -> None:
        if self._mark is not None:
            self._mark(messages)
        self._hot.push(messages)


def _encode(messages: list[Message]) -> bytes:
    """Sequences, then the messages as in a log. They were never delivered: all counts are zero."""
    sequences = array("Q", [message.sequence for message in messages])
    return sequences.tobytes() + encode_enqueue(messages, 0)


def _decode(data: bytes, count: int) -> list[Message]:
    sequences = array("Q")
    sequences.frombytes(data[: sequences.itemsize * count])
    entry = data[sequences.itemsize * count :]
    messages = [m for _, start, _ in split_commands(entry) for m in decode_messages(entry, start)]
    for message, sequence in zip(messages, sequences, strict=True):
        message.sequence = sequence
    return messages


def paged_out(ready: Ready, spill: Spill, loaded: Callable[[list[Message]], None]) -> Ready:
    """The ready list of a queue in memory, from which messages go to disk while that is wanted."""
    if isinstance(ready, FifoReady) and ready.size_bytes + len(ready) * MESSAGE_OVERHEAD_BYTES >= (
        HOT_BYTES + CHUNK_BYTES_MIN
    ):
        ready = SpillingReady(ready, spill, loaded)
    if isinstance(ready, SpillingReady):
        ready.page_out()
    return ready
