"""Whether what clients saw could have come from one copy, each operation at a moment of its own."""

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Operation:
    """What was asked and answered, and when: the positions in one order of events."""

    name: str
    argument: Any
    called: int
    returned: float = float("inf")  # never: it may have been done or not, then or later
    answer: Any = None


def is_linearizable(history, step, state):
    """`step(state, operation)` gives the next state, or None where the answer cannot be.

    Wing and Gong's search: the next operation in line is one that was called before any of those
    not yet in line had returned.
    """
    history = sorted(history, key=lambda one: one.called)
    seen = set()

    def search(left, state):
        if all(history[i].returned == float("inf") for i in left):
            return True
        if (left, state) in seen:
            return False
        seen.add((left, state))
        first_return = min(history[i].returned for i in left)
        for i in left:
            if history[i].called > first_return:
                continue
            after = step(state, history[i])
            if after is not None and search(left - {i}, after):
                return True
        return False

    return search(frozenset(range(len(history))), state)
