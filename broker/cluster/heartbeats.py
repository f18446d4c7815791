"""Whether a peer answers: times in, verdicts out.

    HEARTBEAT         boot u64 | sent f64 (seconds of the sender's clock) | digest
    HEARTBEAT_ANSWER  sent f64, as it came

Everything counts from when a heartbeat was sent. A process that was stopped and wakes finds answers
in its sockets that are as old as its sleep: by the time they were received they would look new.
"""

import struct
from typing import Final

BEAT: Final = struct.Struct(">Qd")
ANSWER: Final = struct.Struct(">d")
DIGEST_BYTES_MAX: Final = 64 * 1024


class Pulse:
    """Of the control lane: beats go out steadily, and one must have been answered lately.

    Time in which this node itself did not listen does not count, as long as it is so short that the
    others cannot have given it up meanwhile.
    """

    __slots__ = (
        "_excused_s",
        "_excused_until",
        "answered",
        "answered_at",
        "round_trip_s",
        "timeout_s",
    )

    def __init__(self, now: float, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.answered = False
        self.answered_at = now  # when the newest beat that was answered was sent
        self.round_trip_s: float | None = None
        self._excused_s = 0.0
        self._excused_until = now

    def excuse(self, late_s: float, now: float) -> None:
        """This node's loop came to it so much too late. Not if it was stopped: that is down."""
        if self.answered_at >= self._excused_until:
            self._excused_s = 0.0
        if late_s <= self.timeout_s / 2:
            self._excused_s = min(self._excused_s + late_s, self.timeout_s)
            self._excused_until = now

    def got_answer(self, sent: float, now: float) -> None:
        if self.answered_at <= sent <= now:  # whatever the peer says
            self.answered = True
            self.answered_at = sent
            self.round_trip_s = now - sent

    @property
    def deadline(self) -> float:
        """Till a beat is answered that was sent since, what is excused counts."""
        excused_s = self._excused_s if self.answered_at < self._excused_until else 0.0
        return self.answered_at + self.timeout_s + excused_s

    def late(self, now: float) -> bool:
        return now > self.deadline


class Brim:
    """Where too much waits, it must go out at a pace; a peer may be slow, but not with that."""

    __slots__ = ("_brim_bytes", "_pace_bytes", "_since", "_timeout_s", "_written")

    def __init__(self, brim_bytes: int, pace_bytes: int, timeout_s: float) -> None:
        self._brim_bytes = brim_bytes
        self._pace_bytes = pace_bytes  # in each time-out
        self._timeout_s = timeout_s
        self._since: float | None = None
        self._written = 0

    def late(self, now: float, *, waiting: int, written: int) -> bool:
        if waiting <= self._brim_bytes:
            self._since = None
            return False
        if self._since is None or written - self._written >= self._pace_bytes:
            self._since, self._written = now, written
        return now - self._since > self._timeout_s


class BulkPulse:
    """Of the bulk lane: now and then one beat, somewhere behind megabytes of other things.

    It is late when, for all of the time-out, neither did bytes in front of it go out nor its answer
    come.
    """

    __slots__ = ("_behind", "_moved_at", "_sent", "_written", "answered", "timeout_s")

    def __init__(self, now: float, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.answered = False
        self._sent: float | None = None
        self._behind = 0  # bytes of this lane, of all times, up to the end of the beat
        self._written = 0
        self._moved_at = now

    def due(self, now: float) -> bool:
        """Whether to send another: four in a time-out, one at a time, the first at once."""
        return self._sent is None and (
            not self.answered or now - self._moved_at >= self.timeout_s / 4
        )

    def sent(self, now: float, *, behind: int, written: int) -> None:
        self._sent = self._moved_at = now
        self._behind = behind
        self._written = written

    def got_answer(self, sent: float) -> None:
        if sent == self._sent:
            self.answered = True
            self._sent = None

    def late(self, now: float, *, written: int) -> bool:
        if self._sent is None:
            return False
        written = min(written, self._behind)
        if written != self._written:
            self._written = written
            self._moved_at = now
        return now - self._moved_at > self.timeout_s
