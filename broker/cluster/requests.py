"""What this node asks of the definitions: numbered, sent again where needed, answered once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.cluster.seams import Result, Then
from broker.protocol.errors import ChannelError

TIME_LIMIT_MS: Final = 5000  # for a quorum: longer than an election takes, twice
# A node that is up and has not made a change this long after us is not waited for any more. It is
# stuck, or further behind than a client should be made to wait.
LEASE_MS: Final = 3000
RETRY_MS: Final = 500  # a leader that got a request before it knew that it leads has dropped it
NO_QUORUM: Final = "no quorum of nodes for the definitions"


class Clock(Protocol):
    def now_ms(self) -> int: ...
    def call_at(self, when_ms: int, callback: Callable[[], None]) -> object: ...


def no_quorum() -> ChannelError:
    return ChannelError(506, NO_QUORUM)


class Letter(NamedTuple):
    """A request on its way to the leader."""

    number: int
    before: int  # the request that has to be proposed before it; 0: none
    low: int  # the oldest that is waited for
    change: bytes


@dataclass(slots=True)
class _Request:
    change: bytes
    then: Then
    limit_ms: int | None  # None: it is repeated until it is done
    index: int | None = None  # of the entry that it was made with on this node
    made_ms: int = 0
    result: Result = None


@dataclass(slots=True)
class _Read:
    then: Then
    limit_ms: int
    index: int | None = None  # what has to be applied here; None: the leader has not said yet
    asked: int = 0  # by which question


class Requests:
    """Those without an answer. `send` and `ask` are given what to say to the leader.

    A request is answered when it is made here and wherever else definitions are used; `behind`
    says which of the nodes that are up have not made the entry of an index.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        send: Callable[[list[Letter]], None],
        ask: Callable[[int], None],
        behind: Callable[[int], set[int]],
    ) -> None:
        self._clock = clock
        self._send = send
        self._ask = ask  # for a read barrier, under this number
        self._behind = behind
        self._requests: dict[int, _Request] = {}  # in order of their numbers
        self._reads: list[_Read] = []
        self._last_number = 0
        self._last_question = 0
        self._ticking = False
        self._applied = 0
        self.silent: set[int] = set()  # nodes that kept us waiting for too long

    def __len__(self) -> int:
        return len(self._requests) + len(self._reads)

    def request(self, change: bytes, then: Then, *, lasting: bool) -> None:
        limit_ms = None if lasting else self._clock.now_ms() + TIME_LIMIT_MS
        self._last_number += 1
        number = self._last_number
        waiting = (n for n in reversed(self._requests) if self._requests[n].index is None)
        before = next(waiting, 0)
        self._requests[number] = _Request(change, then, limit_ms)
        self._tick_later()
        self._send([Letter(number, before, next(iter(self._requests)), change)])

    def read(self, then: Then) -> None:
        self._last_question += 1
        limit_ms = self._clock.now_ms() + TIME_LIMIT_MS
        self._reads.append(_Read(then, limit_ms, asked=self._last_question))
        self._tick_later()
        self._ask(self._last_question)

    def _letters(self) -> list[Letter]:
        low = next(iter(self._requests), 0)
        letters: list[Letter] = []
        for number, request in self._requests.items():
            if request.index is None:
                before = letters[-1].number if letters else 0
                letters.append(Letter(number, before, low, request.change))
        return letters

    def send_again(self) -> None:
        """All that was said may be lost: say it to whoever leads now."""
        letters = self._letters()
        if letters:
            self._send(letters)
        unread = [read for read in self._reads if read.index is None]
        if unread:
            self._last_question += 1
            for read in unread:
                read.asked = self._last_question
            self._ask(self._last_question)

    # What comes back

    def made(self, number: int, index: int, result: Result) -> None:
        """A request of ours was applied here."""
        request = self._requests.get(number)
        if request is not None and request.index is None:
            request.index = index
            request.result = result
            request.made_ms = self._clock.now_ms()

    def made_unseen(self, last: int, results: dict[int, Result], index: int) -> None:
        """A state was installed in which requests up to `last` are made already."""
        for number in [n for n in self._requests if n <= last]:
            self.made(number, index, results.get(number))

    def barrier_at(self, question: int, index: int) -> None:
        """The leader's answer: what was asked by then may be read once `index` is applied."""
        for read in self._reads:
            if read.index is None and read.asked <= question:
                read.index = index

    def advance(self, applied: int) -> None:
        """Answer whatever can be: something was applied, here or elsewhere, or a node went."""
        self._applied = applied
        done: list[tuple[Then, Result]] = []
        for number, request in list(self._requests.items()):
            if not self._is_everywhere(request):
                break  # nor are those after it
            del self._requests[number]
            done.append((request.then, request.result))
        free = [r for r in self._reads if r.index is not None and r.index <= applied]
        self._reads = [r for r in self._reads if r.index is None or r.index > applied]
        _answer([*done, *((read.then, None) for read in free)])

    def _is_everywhere(self, request: _Request) -> bool:
        if request.index is None:
            return False
        behind = self._behind(request.index) - self.silent
        if behind and self._clock.now_ms() - request.made_ms >= LEASE_MS:
            self.silent |= behind
            return True
        return not behind

    # Time

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._clock.call_at(self._clock.now_ms() + RETRY_MS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = self._clock.now_ms()
        late: list[tuple[Then, Result]] = []
        for number, request in list(self._requests.items()):
            if request.index is None and request.limit_ms is not None and request.limit_ms <= now:
                del self._requests[number]
                late.append((request.then, no_quorum()))
        late += [(read.then, no_quorum()) for read in self._reads if read.limit_ms <= now]
        self._reads = [read for read in self._reads if read.limit_ms > now]
        _answer(late)
        if self:
            self._tick_later()
            self.send_again()
            self.advance(self._applied)


def _answer(answers: Iterable[tuple[Then, Result]]) -> None:
    for then, result in answers:
        then(result)
