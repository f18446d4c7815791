"""Whether what concurrent clients saw of something fits one order of their operations.

Each operation takes effect at one moment between its call and its return; one whose outcome is
not known may take effect at any time after its call, or never (Wing and Gong, with Lowe's memory
of configurations that have been tried).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

UNKNOWN = "unknown"
Step = Callable[[Any, "Operation"], Sequence[Hashable]]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asked for, when, and what it was told."""

    subject: str
    action: str
    argument: str
    result: str
    called: float
    returned: float = math.inf
    client: str = ""

    @property
    def known(self) -> bool:
        return self.result != UNKNOWN


def check_metadata(history: list[Operation]) -> list[str]:
    """Each queue is judged by itself: linearizability is a property of single objects."""
    problems = []
    for subject in sorted({one.subject for one in history}):
        operations = [one for one in history if one.subject == subject]
        if not linearizable(operations, ABSENT, step_queue):
            told = "\n  ".join(map(_told, sorted(operations, key=lambda one: one.called)))
            problems.append(f"{subject}: no order explains what clients saw:\n  {told}")
    return problems


ABSENT = None


def step_queue(state: frozenset[str] | None, one: Operation) -> Sequence[frozenset[str] | None]:
    """A queue and its bindings: the states after an operation, none if it cannot have that result.

    Actions: declare, delete, look (is it there?), bind and unbind (a key), probe (does a message
    with that key reach it?). Results: ok, absent (404), yes, no.
    """
    if one.action == "probe":
        routed = state is not None and one.argument in state
        fits = one.result in (UNKNOWN, "yes" if routed else "no")
        return [state] if fits else []
    if one.action == "declare":
        return [state if state is not None else frozenset()] if one.result != "absent" else []
    if one.action == "delete":
        return [ABSENT] if one.result != "absent" else []
    # To unbind what is not there is no mistake.
    expected = "ok" if state is not None or one.action == "unbind" else "absent"
    if one.result not in (UNKNOWN, expected):
        return []
    if state is None or one.action == "look":
        return [state]
    if one.action == "bind":
        return [state | {one.argument}]
    assert one.action == "unbind", one.action
    return [state - {one.argument}]


def linearizable(operations: Sequence[Operation], initial: Hashable, step: Step) -> bool:
    """Whether some order of the operations gives each its result."""
    ordered = sorted(operations, key=lambda one: one.called)
    # Operations whose outcome is unknown end at infinity: nothing has to wait for them.
    returns = [one.returned if one.known else math.inf for one in ordered]
    needed = sum(1 << index for index, one in enumerate(ordered) if one.known)
    tried: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Hashable]] = [(0, initial)]
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        left = [index for index in range(len(ordered)) if not done >> index & 1]
        soonest = min(returns[index] for index in left)
        for index in left:
            if ordered[index].called > soonest:
                break
            stack += [(done | 1 << index, after) for after in step(state, ordered[index])]
    return False


def _told(one: Operation) -> str:
    end = "…" if math.isinf(one.returned) else f"{one.returned:.3f}"
    return f"{one.called:.3f}–{end} {one.client} {one.action} {one.argument} → {one.result}"  # noqa: RUF001
