"""How long things took: counted in steps of two per cent, so that any number fits little memory."""

import math
from collections import Counter
from typing import Final

STEP: Final = math.log(1.02)
LEAST_S: Final = 1e-6  # what is shorter counts as this


class Latencies:
    """Seconds in, percentiles out."""

    def __init__(self) -> None:
        self.count = 0
        self.most_s = 0.0
        self._steps: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.count += 1
        self.most_s = max(self.most_s, seconds)
        self._steps[round(math.log(max(seconds, LEAST_S)) / STEP)] += 1

    def percentile_s(self, percent: float) -> float:
        """So many per cent took no longer, give or take one per cent. Nothing was added: 0."""
        wanted = self.count * percent / 100
        passed = 0
        for step in sorted(self._steps):
            passed += self._steps[step]
            if passed >= wanted:
                return min(math.exp(step * STEP), self.most_s)
        return 0.0
