"""Internal errors of a node in the process of the test itself: let out, for simulations."""

from typing import NoReturn

from broker.internal_errors import InternalErrors


def let_out(errors: InternalErrors) -> None:
    """A node goes on after a bug; a simulation must not."""
    errors.note = _raise  # type: ignore[method-assign]


def _raise(_where: str, error: BaseException, **_fields: object) -> NoReturn:
    raise error
