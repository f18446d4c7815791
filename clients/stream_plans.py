"""What the clients of streams do, step by step, written once for the blocking one and for Trio's.

A plan is a generator. It yields steps; whoever runs it carries them out in its own way, sends in
what came of each, and throws in what went wrong. So a plan knows no socket, no clock and no lock.
"""

from collections.abc import Awaitable, Callable, Container, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from broker.protocol.stream_wire import Operation, Status
from clients.stream_errors import (
    ConnectionLostError,
    LoginTimeoutError,
    NoBrokerError,
    RefusedError,
)

T = TypeVar("T")
M = TypeVar("M")

# Nobody leads it, or another transaction of its producer is about to be decided.
NOT_NOW: Final = (Status.UNAVAILABLE, Status.TRANSACTION_BUSY)


class Ask(NamedTuple):
    """One request; gives its answer. Raises RefusedError, and ConnectionLostError if none came."""

    message: Any
    kind: type[Any]
    operation: Operation | None = None


class Again(NamedTuple):
    """A pause before the next attempt. Raises the error instead if there is to be none."""

    attempt: int  # that failed, from 0: pauses grow
    error: Exception


class Call(NamedTuple):
    """Call this, and wait for it if it is to be waited for; gives what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Alone(NamedTuple):
    """Carry out a plan while no other of this kind is; gives what it returns."""

    plan: "Plan[Any]"


Step: TypeAlias = Ask | Again | Call | Alone
Plan: TypeAlias = Generator[Step, Any, T]


def run(plan: Plan[T], carry_out: Callable[[Step], Any]) -> T:
    try:
        step = next(plan)
        while True:
            try:
                result = carry_out(step)
            except Exception as error:  # noqa: BLE001 - the plan knows what to do with it
                step = plan.throw(error)
            else:
                step = plan.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        plan.close()


async def run_async(plan: Plan[T], carry_out: Callable[[Step], Awaitable[Any]]) -> T:
    """Cancelled, the plan ends where it is."""
    try:
        step = next(plan)
        while True:
            try:
                result = await carry_out(step)
            except Exception as error:  # noqa: BLE001 - the plan knows what to do with it
                step = plan.throw(error)
            else:
                step = plan.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        plan.close()


def asked(
    message: Any,
    kind: type[M],
    operation: Operation | None = None,
    *,
    unless: Container[int] = NOT_NOW,
) -> Plan[M]:
    """Ask until it is answered, for what may be asked twice.

    That is when the connection is not lost meanwhile, and the status is not one of `unless`, which
    mean that nobody can answer now.
    """
    attempt = 0
    while True:
        try:
            answer: M = yield Ask(message, kind, operation)
        except (NoBrokerError, LoginTimeoutError):
            raise
        except ConnectionLostError as error:
            problem: Exception = error
        except RefusedError as error:
            if error.status not in unless:
                raise
            problem = error
        else:
            return answer
        yield Again(attempt, problem)
        attempt += 1


def may_ask_again(error: ConnectionLostError | RefusedError) -> bool:
    if isinstance(error, RefusedError):
        return error.status in NOT_NOW
    return not isinstance(error, NoBrokerError)
