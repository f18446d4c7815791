"""How long publishing pauses when the node that leads a queue is killed."""

from __future__ import annotations

import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pamqp import commands

from benchmarks.wire import BrokerError, Connection, describe, encode_publish

if TYPE_CHECKING:
    from benchmarks.clusters import Cluster

BODY_BYTES = 1024
# 1,000 messages a second: a load that three nodes on two cores carry without a backlog.
TICK_S = 0.01
PER_TICK = 10
UNCONFIRMED_MAX = 10_000
WARM_UP_S = 2.0
AFTER_S = 2.0
GIVE_UP_S = 60.0
_FRAME_HEAD = struct.Struct(">BHI")
_BASIC_ACK, _BASIC_NACK = (60, 80), (60, 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverResult:
    """One loss of a leader, seen by a publisher on a node that lives on."""

    pause_s: float
    """From the kill to the first confirm of a message that was published after it."""
    longest_gap_s: float
    """Between two confirms that follow each other."""
    refused: int
    """Messages that were nacked, or lost with a connection that the node closed."""


class SteadyPublisher:
    """A thread that publishes at a fixed rate and notes when each message was confirmed."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._message = encode_publish(
            exchange="",
            routing_key=queue,
            body_bytes=BODY_BYTES,
            properties=commands.Basic.Properties(delivery_mode=2),
        )
        self.confirms: list[tuple[float, float]] = []
        """When it was published and when it was confirmed, in the order of the confirms."""
        self.refused = 0
        self._connection: Connection | None = None
        self._unread = b""
        self._tag = 0
        self._sent_at: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                if self._connection is None:
                    self._connect()
                self._step()
            except (OSError, BrokerError):
                self._disconnect()
            due = max(due + TICK_S, time.monotonic() - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))

    def _connect(self) -> None:
        self._connection = Connection(self._url)
        self._connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._connection.sock.settimeout(0)
        self._tag, self._unread = 0, b""

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.refused += len(self._sent_at)
        self._sent_at.clear()

    def _step(self) -> None:
        assert self._connection is not None
        sock = self._connection.sock
        if len(self._sent_at) < UNCONFIRMED_MAX:
            now = time.monotonic()
            sock.settimeout(GIVE_UP_S)
            sock.sendall(self._message * PER_TICK)
            sock.settimeout(0)
            for _ in range(PER_TICK):
                self._tag += 1
                self._sent_at[self._tag] = now
        with suppress(BlockingIOError):
            data = sock.recv(1 << 16)
            if not data:
                raise BrokerError("cut off")
            self._read(self._unread + data)

    def _read(self, data: bytes) -> None:
        now, start = time.monotonic(), 0
        while len(data) - start >= _FRAME_HEAD.size:
            kind, channel, size = _FRAME_HEAD.unpack_from(data, start)
            if len(data) - start < size + 8:
                break
            if kind == 1 and channel:
                self._confirm(data[start + 7 : start + 7 + size], now, data[start:])
            start += size + 8
        self._unread = data[start:]

    def _confirm(self, method: bytes, now: float, rest: bytes) -> None:
        identity = struct.unpack_from(">HH", method)
        if identity not in (_BASIC_ACK, _BASIC_NACK):
            raise BrokerError(describe(rest))
        tag, flags = struct.unpack_from(">QB", method, 4)
        tags = [one for one in self._sent_at if one <= tag] if flags & 1 else [tag]
        for one in tags:
            sent_at = self._sent_at.pop(one, None)
            if sent_at is None:
                continue
            if identity == _BASIC_ACK:
                self.confirms.append((sent_at, now))
            else:
                self.refused += 1


def measure_failover(cluster: Cluster, queue: str, survivors: list[str]) -> FailoverResult:
    """Kill the leader of a queue under load; it is for the caller to start it again."""
    leader = cluster.leader_of(queue)
    watcher = next(node for node in survivors if node != leader)
    publisher = SteadyPublisher(cluster.url(watcher), queue)
    try:
        _wait(publisher, since=time.monotonic() + WARM_UP_S)
        killed_at = time.monotonic()
        cluster.kill(leader)
        _wait(publisher, since=killed_at)
        time.sleep(AFTER_S)
    finally:
        publisher.stop()
    confirmed = list(publisher.confirms)
    pause = next(at for sent_at, at in confirmed if sent_at >= killed_at) - killed_at
    times = [at for _, at in confirmed if at >= killed_at - 1.0]
    gap = max((later - earlier for earlier, later in pairwise(times)), default=pause)
    return FailoverResult(pause_s=pause, longest_gap_s=gap, refused=publisher.refused)


def _wait(publisher: SteadyPublisher, *, since: float) -> None:
    """Until a message is confirmed that was published at or after `since`."""
    deadline = since + GIVE_UP_S
    while not publisher.confirms or publisher.confirms[-1][0] < since:
        if time.monotonic() > deadline:
            raise BrokerError(f"nothing was confirmed for {GIVE_UP_S:.0f} s")
        time.sleep(0.005)
