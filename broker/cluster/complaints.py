"""Log lines about nodes that cannot be linked, not one for each of many attempts."""

from typing import Final

import trio

from broker import logs

AGAIN_S: Final = 30.0  # the same reason is logged again after this
SOURCES_MAX: Final = 256  # strangers included; beyond it the memory starts anew

_log = logs.get("cluster")


class Complaints:
    """By whom they are about: the last reason, and when it was told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, object], tuple[str, float]] = {}

    def tell(self, event: str, source: object, reason: str, **fields: object) -> None:
        now = trio.current_time()
        last, at = self._told.get((event, source), ("", now))
        if last == reason and now - at < AGAIN_S:
            return
        if len(self._told) >= SOURCES_MAX:
            self._told.clear()
        self._told[event, source] = (reason, now)
        _log.warning(event, **fields, reason=reason)

    def forget(self, source: object) -> None:
        """It went well: the next failure is news."""
        for key in [key for key in self._told if key[1] == source]:
            del self._told[key]
