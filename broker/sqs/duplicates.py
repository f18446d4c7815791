"""What was answered for messages of FIFO queues lately: a duplicate is answered the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# As with ids in a queue, the oldest go first; after that a duplicate is given an id of its own.
ANSWERS_MAX: Final = 100_000
_TOLD: Final = ("MessageId", "SequenceNumber")


class Duplicates:
    """Whether something is a duplicate is for its queue to say."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[str, ...]] = {}

    def remember(self, key: bytes, told: Mapping[str, Any]) -> None:
        self._answers.pop(key, None)
        if len(self._answers) >= ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = tuple(told[name] for name in _TOLD)

    def find(self, key: bytes) -> dict[str, str]:
        return dict(zip(_TOLD, self._answers.get(key, ()), strict=False))
