"""Changes to the registry: decided by what is there, made only if that is still so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from broker import logs
from broker.journal import encode_change
from broker.protocol.errors import ChannelError
from broker.registry import errors
from broker.registry.state import CHANGED, REQUEST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from typing import TypeVar

    from broker.registry.asking import Ask

    T = TypeVar("T")

# For all attempts. Each time that one is too late another one was in time, so that it ends.
TIME_LIMIT_S: Final = 30.0
# Requests of a node that are under way. They have a megabyte each, and those that wait for a leader
# of the definitions go to it in one message.
AT_A_TIME_MAX: Final = 4

_log = logs.get("registry")


class TooLateError(Exception):
    """What a change was decided by has changed: decide again."""


class Changer:
    """One per node."""

    def __init__(self) -> None:
        self._turns = trio.Semaphore(AT_A_TIME_MAX)

    async def until_made(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt it until nothing comes between deciding and making."""
        with trio.move_on_after(TIME_LIMIT_S):
            while True:
                async with self._turns:
                    try:
                        return await attempt()
                    except TooLateError:
                        pass  # somebody else's turn has come between
        raise errors.timed_out("others change the subject all the time")


async def commit(
    ask: Ask, subjects: Collection[str], seen: dict[str, bytes], *changes: list[Any]
) -> None:
    """Make changes that were decided by these subjects, as `seen` has their tokens.

    Raises TooLateError if they are not as they were.
    """
    conditions = [[subject, seen[subject]] for subject in subjects]
    call, node = ask.call, ask.call.node
    try:
        if node.catalog is not None:
            await call.changes(node.catalog, [REQUEST, conditions, list(changes)])
        else:
            encode_change(
                [REQUEST, conditions, list(changes)]
            )  # what cannot be written is not made
            pairs = [(subject, seen[subject]) for subject in subjects]
            made = ask.schemas.carry_out(pairs, changes)
            if node.journal is not None:
                for change in made:
                    node.journal.record(*change)
                await call.happens(node.journal.when_durable)
    except ChannelError as error:
        if error.text == CHANGED:
            raise TooLateError from None
        raise
    for change in changes:
        _log.info("changed", kind=change[0], subject=change[1], by=call.user.name)


def tokens(ask: Ask, subjects: Collection[str]) -> dict[str, bytes]:
    """To be taken before anything is decided."""
    return {subject: ask.schemas.token(subject) for subject in subjects}
