"""What an oracle raises, and how to tell it from whatever else goes wrong in a run.

A planted bug is caught where a promise is seen to be broken. One that merely ends the run with some
other exception proves nothing: the same bug may well break its promise without one.
"""

from collections.abc import Iterator


class BrokenPromiseError(AssertionError):
    """The code under test did what it must not, or not what it must."""


def check(kept: object, *said: object) -> None:
    if not kept:
        raise BrokenPromiseError(" ".join(map(str, said)))


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """Out of the wrappings of nurseries and of Trio's own callbacks."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _all_of(each)
    if error.__cause__ is not None:
        yield from _all_of(error.__cause__)


def breaks_a_promise(error: BaseException) -> bool:
    return any(isinstance(each, BrokenPromiseError) for each in _all_of(error))
