"""What ends with a consumer, a channel or a connection: on all nodes before the client hears it.

A queue that goes with its last consumer, or with its connection, is gone when the client hears that
it has cancelled or closed. On one node that is so by itself.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.cluster.front import QueueFront
from broker.protocol.errors import ChannelError

if TYPE_CHECKING:
    from broker.vhost import VHost

# Nobody is kept for longer: without a quorum it will be gone when there is one again.
PATIENCE_MS: Final = 2000


def when_unused_are_gone(
    vhost: "VHost", queues: Iterable[object], then: Callable[[], None]
) -> None:
    """Consumers have left these queues: call back when those are gone that end with their last."""
    fronts = {q for q in queues if isinstance(q, QueueFront) and q.auto_delete}
    if not fronts:
        then()
        return
    done = _counted(vhost, len(fronts), then)
    for front in fronts:
        _await_end(vhost, front, done)


def when_owner_is_gone(
    vhost: "VHost", owner: object, queues: Iterable[object], then: Callable[[], None]
) -> None:
    """The same for a connection, which also owned some, and consumed from others."""
    if vhost.catalog is None:
        vhost.forget_owner(owner)
        then()
        return
    done = _counted(vhost, 2, then)
    vhost.forget_owner(owner, done)
    when_unused_are_gone(vhost, queues, done)


def _counted(vhost: "VHost", count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Calls back once: when it was called so often, or time is up."""
    left = count

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            timer.cancel()
            then()

    def time_is_up() -> None:
        nonlocal left
        if left > 0:
            left = 0
            then()

    timer = vhost.call_at(vhost.now_ms() + PATIENCE_MS, time_is_up)
    return done


def _await_end(vhost: "VHost", front: QueueFront, done: Callable[[], None]) -> None:
    """Its leader asked for the end if it is unused. To ask too says when all nodes have it."""
    catalog = vhost.catalog
    assert catalog is not None

    def ask() -> None:
        catalog.request(["-queue", vhost.name, front.name, front.uid], lambda _: done())

    def checked(answer: int | ChannelError) -> None:
        if isinstance(answer, int) or front.deleted:
            ask()
        else:  # somebody else consumes; or nobody knows
            done()

    if front.deleted:
        ask()
    else:
        front.check_delete(if_unused=True, if_empty=False, then=checked)
