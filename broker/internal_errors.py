"""Bugs of ours, where they would otherwise end the node: logged with their cause, and counted.

A node serves many clients in one loop. Whatever runs there on somebody's behalf (a connection, a
request, a timer, a callback) is run under a guard at the boundary where it begins:

    with node.errors.guard("timer", callback=name):
        callback()

An exception that gets that far ends the work that it belongs to and nothing else. Two things are
not for a guard, and stop the node: a disk that failed, and a log whose invariants do not hold
(`broker.log_host.LogHost.fail` and `broken`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker import logs

# Where an internal error can be met: the values of the metric's label `where`.
TIMER: Final = "timer"
FLUSH: Final = "flush"  # a connection's writes at the end of a turn
CONNECTION: Final = "connection"  # AMQP
STREAM_SESSION: Final = "stream_session"
HTTP: Final = "http"
CALLBACK: Final = "callback"  # of work that was done away from the loop
CLUSTER: Final = "cluster"
GROUPS: Final = "groups"
WATCH: Final = "watch"  # of memory, certificates, rates
BACKGROUND: Final = "background"  # sessions and tasks that outlast a request
ACCEPT: Final = "accept"
PLACES: Final = (
    *(TIMER, FLUSH, CONNECTION, STREAM_SESSION, HTTP, CALLBACK, CLUSTER, GROUPS, WATCH),
    *(BACKGROUND, ACCEPT),
)
# An error that comes with every turn must not fill the disk with its traceback.
TRACEBACKS_MAX: Final = 100  # of one place in the life of a node; then each hundredth

_log = logs.get("node")


class InternalErrors:
    """Of one node."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(PLACES, 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self, where: str, error: BaseException, **fields: object) -> None:
        """It was met, and ended what it belonged to."""
        self.counts[where] += 1
        count = self.counts[where]
        if count <= TRACEBACKS_MAX or not count % TRACEBACKS_MAX:
            _log.exception("internal_error", error, where=where, count=count, **fields)

    @contextmanager
    def guard(self, where: str, **fields: object) -> Iterator[None]:
        """Let nothing out but what is no `Exception`: the end of the process, a cancellation."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is what a guard is for
            self.note(where, error, **fields)
