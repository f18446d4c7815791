"""The jobs that have reported to this node: the latest news of each, in memory, for a while."""

from __future__ import annotations

import re
from typing import Any, Final

JOBS_MAX: Final = 1000  # the console's table, and series of Prometheus
NAME_CHARS_MAX: Final = 255
SILENT_MS: Final = 60_000  # without news of a job that runs: they come every ten seconds
FORGET_MS: Final = 3_600_000  # jobs that ended or fell silent
NUMBER_MAX: Final = 2**63 - 1
ENDED: Final = frozenset({"stopped", "failed", "finished"})
SILENT: Final = "silent"
PAUSED: Final = "paused"  # it waits for something that is away, and goes on by itself
_STATE: Final = re.compile(r"[a-z_]{1,32}")
COUNTS: Final = ("processed", "errors", "dead_letters", "batch_ms")
REALS: Final = ("lag_seconds", "rows_per_second", "error_rate")

News = dict[str, Any]


class NewsError(ValueError):
    """What a job says of itself makes no sense."""


class Jobs:
    def __init__(self) -> None:
        self._rows: dict[str, News] = {}
        self._writers: dict[str, str] = {}  # who reported a job first

    def may_write(self, name: str, user: str) -> bool:
        """A job's status belongs to whoever reported it, as long as it is known."""
        return name not in self._rows or self._writers.get(name, user) == user

    def put(self, name: str, said: News, now_ms: int, user: str = "") -> bool:
        """Whether the job is new. Raises NewsError."""
        row = _row(name, said, now_ms)
        is_new = name not in self._rows
        if is_new:
            self._make_room(now_ms)
            self._writers = {each: who for each, who in self._writers.items() if each in self._rows}
            self._writers[name] = user
        self._rows[name] = row
        return is_new

    def delete(self, name: str) -> bool:
        return self._rows.pop(name, None) is not None

    def rows(self, now_ms: int) -> list[News]:
        """By name."""
        self._forget(now_ms)
        return [_shown(self._rows[name], now_ms) for name in sorted(self._rows)]

    def _forget(self, now_ms: int) -> None:
        for name, row in list(self._rows.items()):
            if now_ms - row["updated_ms"] > FORGET_MS:
                del self._rows[name]

    def _make_room(self, now_ms: int) -> None:
        """Of jobs that are over the one goes that was heard of least lately."""
        self._forget(now_ms)
        if len(self._rows) < JOBS_MAX:
            return
        over = [row for row in self._rows.values() if is_over(_shown(row, now_ms))]
        if not over:
            raise NewsError(f"there are {JOBS_MAX} jobs already")
        del self._rows[min(over, key=lambda row: row["updated_ms"])["name"]]


def newest(rows: list[News]) -> list[News]:
    """Of what several nodes know of jobs, the latest; by name."""
    found: dict[str, News] = {}
    for row in rows:
        known = found.get(row["name"])
        if known is None or known["updated_ms"] < row["updated_ms"]:
            found[row["name"]] = row
    return [found[name] for name in sorted(found)]


def is_over(row: News) -> bool:
    return row["state"] in ENDED or row["state"] == SILENT


def _shown(row: News, now_ms: int) -> News:
    is_silent = row["state"] not in ENDED and now_ms - row["updated_ms"] > SILENT_MS
    return row | {"state": SILENT} if is_silent else row


def _row(name: str, said: News, now_ms: int) -> News:
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise NewsError(f"a job's name has 1 to {NAME_CHARS_MAX} characters that can be shown")
    state = said.get("state")
    if not isinstance(state, str) or not _STATE.fullmatch(state) or state == SILENT:
        raise NewsError("state: one word, such as running, alarm, paused, stopped or failed")
    row: News = {"name": name, "state": state}
    row |= {field: _count(field, said.get(field, 0)) for field in COUNTS}
    row |= {field: _real(field, said.get(field, 0)) for field in REALS}
    return row | {"updated_ms": now_ms}


def _count(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise NewsError(f"{field}: a whole number from 0 on")
    return value


def _real(field: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX:
        return float(value)  # which is no NaN: that is not within anything
    raise NewsError(f"{field}: a number from 0 on")
