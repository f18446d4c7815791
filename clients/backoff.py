"""How long the Trio clients wait before they dial or ask again."""

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt: twice as long each time, and somewhere between
    half of that and all of it, so that a thousand clients do not come back in step."""

    first_s: float = 0.1
    most_s: float = 30.0
    attempts: int | None = None  # rounds over all addresses; None: for ever, 0: no reconnect

    def pause_s(self, attempt: int, chance: random.Random) -> float:
        longest = min(self.most_s, self.first_s * 2.0 ** min(attempt, 32))
        return longest * chance.uniform(0.5, 1.0)


NEVER: Final = Backoff(attempts=0)
