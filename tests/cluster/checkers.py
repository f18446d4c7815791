"""What must hold of a history, whatever was done to the nodes. Each check returns what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.cluster.histories import Key, Outcome, QueueHistory, StreamHistory

SHOWN_MAX = 5


def check_queue(history: QueueHistory) -> list[str]:
    """Of a queue that was drained in the end."""
    return [
        *_lost(history.outcomes, {one.key for one in history.deliveries}, history.queue),
        *_phantoms(history.outcomes, [one.key for one in history.deliveries], history.queue),
        *_unflagged_duplicates(history),
        *_out_of_order(history),
    ]


def check_arrivals(history: QueueHistory) -> list[str]:
    """Of what was confirmed by one queue and had to come out, maybe of another."""
    seen = {one.key for one in history.deliveries}
    return [
        *_lost(history.outcomes, seen, history.queue),
        *_phantoms(history.outcomes, [one.key for one in history.deliveries], history.queue),
    ]


def check_stream(history: StreamHistory) -> list[str]:
    """Of a stream that every reader read from its beginning to its end."""
    problems = [
        *_phantoms(history.outcomes, [one.key for one in history.reads], history.stream),
        *_gaps(history),
        *_disagreements(history),
    ]
    for reader in sorted({one.reader for one in history.reads}):
        seen = {one.key for one in history.reads if one.reader == reader}
        problems += _lost(history.outcomes, seen, f"{history.stream}, reader {reader}")
    if not history.reads:
        problems += _lost(history.outcomes, set(), history.stream)
    return problems


def _lost(outcomes: dict[Key, Outcome], seen: set[Key | None], where: str) -> list[str]:
    """Confirmed messages must come out."""
    lost = sorted(
        key for key, one in outcomes.items() if one is Outcome.CONFIRMED and key not in seen
    )
    return [f"{where}: {len(lost)} confirmed lost: {_some(lost)}"] if lost else []


def _phantoms(outcomes: dict[Key, Outcome], keys: list[Key | None], where: str) -> list[str]:
    """Nothing may come out that was not put in."""
    damaged = sum(key is None for key in keys)
    strange = sorted({key for key in keys if key is not None and key not in outcomes})
    problems = [f"{where}: {damaged} bodies are damaged or foreign"] if damaged else []
    if strange:
        problems.append(f"{where}: {len(strange)} never published: {_some(strange)}")
    return problems


def _unflagged_duplicates(history: QueueHistory) -> list[str]:
    """A message may come again only with the redelivered flag."""
    first_times = Counter(one.key for one in history.deliveries if not one.redelivered)
    twice = sorted(key for key, count in first_times.items() if count > 1 and key is not None)
    if not twice:
        return []
    return [f"{history.queue}: {len(twice)} came again without redelivered: {_some(twice)}"]


def _out_of_order(history: QueueHistory) -> list[str]:
    """What a consumer gets for the first time keeps the order in which a session published it."""
    last: dict[tuple[str, str], int] = {}
    wrong: list[tuple[str, Key]] = []
    for one in history.deliveries:
        if one.redelivered or one.key is None:
            continue
        place = (one.consumer, one.key.session)
        if one.key.number <= last.get(place, -1):
            wrong.append((one.consumer, one.key))
        else:
            last[place] = one.key.number
    if not wrong:
        return []
    return [f"{history.queue}: {len(wrong)} out of order: {_some(wrong)}"]


def _gaps(history: StreamHistory) -> list[str]:
    """A reader gets every offset from 0 on, once and in order."""
    expected: dict[str, int] = defaultdict(int)
    problems = []
    for one in history.reads:
        if one.offset != expected[one.reader]:
            problems.append(
                f"{history.stream}: reader {one.reader} got offset {one.offset} "
                f"instead of {expected[one.reader]}"
            )
        expected[one.reader] = one.offset + 1
    return problems[:SHOWN_MAX]


def _disagreements(history: StreamHistory) -> list[str]:
    """All readers get the same at an offset, no message is at two, and sessions keep their order.

    The last two together: what a stream stores of a session has rising numbers.
    """
    by_offset: dict[int, Key | None] = {}
    problems = []
    for one in history.reads:
        known = by_offset.setdefault(one.offset, one.key)
        if known != one.key:
            problems.append(
                f"{history.stream}: at offset {one.offset} is {known} for one reader "
                f"and {one.key} for {one.reader}"
            )
    last: dict[str, int] = {}
    for offset, key in sorted(by_offset.items()):
        if key is None:
            continue
        if key.number <= last.get(key.session, -1):
            problems.append(
                f"{history.stream}: {key} at offset {offset} comes after "
                f"number {last[key.session]} of its session"
            )
        last[key.session] = max(key.number, last.get(key.session, -1))
    return problems[:SHOWN_MAX]


def _some(items: list[object] | list[Key] | list[tuple[str, Key]]) -> str:
    shown = ", ".join(map(str, items[:SHOWN_MAX]))
    return f"{shown}, …" if len(items) > SHOWN_MAX else shown
