"""Leases of a channel extended all together: one walk over them a turn, however often it is asked.

A walk looks at everything unacked, which may be 50,000 deliveries, and one read of a socket holds
thousands of requests for it. All but the first of a turn are answered as that one was; if one of
them says something new, all leases are extended by the last of them when the turn is over.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.vhost import VHost
    from queues.consumers import Later


class LeaseWalks:
    """Of one channel; `walk` extends all its leases, and says whether there were any."""

    __slots__ = ("_again", "_answer", "_vhost", "_walk")

    def __init__(self, vhost: "VHost", walk: "Callable[[int | None], bool | Later]") -> None:
        self._vhost = vhost
        self._walk = walk
        self._answer: bool | Later | None = None  # of the first walk of this turn
        self._again: tuple[int | None] | None = None

    def ask(self, lease_ms: int | None) -> "bool | Later":
        if self._answer is None:
            self._answer = self._walk(lease_ms)
            self._vhost.call_at(self._vhost.now_ms(), self._turn_is_over)
            return self._answer
        self._again = (lease_ms,)
        return self._answer if isinstance(self._answer, bool) else True

    def _turn_is_over(self) -> None:
        again, self._again, self._answer = self._again, None, None
        if again is not None:
            answer = self._walk(*again)
            if not isinstance(answer, bool):
                answer(lambda _extended: None)  # other nodes are told by this
