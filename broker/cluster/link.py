"""A link to another node: two lanes, their tasks, and whether it is up.

It comes up once heartbeats have gone both ways on both lanes. Each node sends its first message of
a lane behind the answer to a heartbeat on that lane, so that the other, reading it, lacks at most
an answer on the other lane: it reads on once that has come.

A heartbeat of the bulk lane ends with a byte that says what the sender understands; nodes of the
first version send none, and do not look for one:

    bit 0   whole messages between the pieces of a parcel
"""

from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from broker import logs
from broker.cluster.frames import FrameError
from broker.cluster.heartbeats import ANSWER, BEAT, DIGEST_BYTES_MAX, Brim, BulkPulse, Pulse
from broker.cluster.kinds import Kind, Lane
from broker.cluster.mail import Key
from broker.cluster.pipe import Pipe
from broker.cluster.wire import Wire
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.peers import Peers

_HEARTBEAT: Final = int(Kind.HEARTBEAT)
_ANSWER: Final = int(Kind.HEARTBEAT_ANSWER)
_OWN: Final = frozenset({_HEARTBEAT, _ANSWER})
_PASSING: Final = 1  # the bit
_UNDERSTOOD: Final = bytes([_PASSING])

Frames: TypeAlias = list[tuple[int, bytes]]

_log = logs.get("cluster")


class Link:
    """From the hello on both lanes to its end. `run` is its life."""

    def __init__(self, peers: "Peers", node: NodeId, wires: tuple[Wire, Wire]) -> None:
        options = peers.options
        now = trio.current_time()
        self.node = node
        self.up = False
        self.was_up = False
        self.ended: str | None = None  # why
        self.lets_pass = False  # the peer takes messages between the pieces of a large one
        self.pulse = Pulse(now, options.timeout_s)
        self.bulk_pulse = BulkPulse(now, options.bulk_timeout_s)
        self._brim = Brim(options.brim_bytes, options.low_bytes, options.bulk_timeout_s)
        self.pipes = (Pipe(wires[Lane.CONTROL]), Pipe(wires[Lane.BULK]))
        self._heard = [False, False]  # the peer's heartbeat came, by lane
        self._wake_at = now  # when its task is to look again
        self._peers = peers
        self._options = options
        self._came_up = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def waiting_bytes(self) -> int:
        control, bulk = self.pipes
        return control.waiting_bytes + bulk.waiting_bytes

    @property
    def _small_bytes(self) -> int:
        control, bulk = self.pipes
        return control.small_bytes + bulk.small_bytes

    def carries(self, key: Key) -> bool:
        return self.pipes[key[0].lane].carries(key)

    def has_enough(self, key: Key) -> bool:
        """Whether more of that key should wait until some of what waits has gone out."""
        options, bulk = self._options, self.pipes[Lane.BULK]
        if self._small_bytes > options.high_bytes:
            return True
        if bulk.large_bytes <= options.high_bytes:
            return False
        return bulk.carries(key) or bulk.keys_carried >= options.large_keys_max

    def end(self, reason: str) -> None:
        """Stop its tasks soon; `run` then tells that it is down. From anywhere."""
        if self.ended is None:
            self.ended = reason
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for lane, pipe in zip(Lane, self.pipes, strict=True):
                        nursery.start_soon(self._read, lane, pipe)
                        nursery.start_soon(self._drain, pipe)
                    nursery.start_soon(self._beat)
        finally:
            self._peers.went_down(self, self.ended or "this node stops")
            for pipe in self.pipes:
                pipe.discard()
            with trio.CancelScope(shield=True):
                for pipe in self.pipes:
                    await pipe.wire.aclose()

    async def _read(self, lane: Lane, pipe: Pipe) -> None:
        while True:
            try:
                frames = await pipe.read()
            except FrameError as error:
                frames = None
                self.lost(f"its {lane.name.lower()} lane sends no frames: {error}")
            # This process may have been stopped. Who did not answer meanwhile is down, and that
            # comes before whatever they said.
            self._peers.expire(trio.current_time())
            if self.ended is not None:
                return
            if frames is None:
                self.lost(f"its {lane.name.lower()} lane was closed")
                return
            if not self.up:
                frames = await self._wait_up(lane, frames)
            self._handle(lane, frames)
            self._peers.end_of_turn()

    async def _wait_up(self, lane: Lane, frames: Frames) -> Frames:
        """What is left of the frames once the link is up: all but the heartbeats in front."""
        for position, (kind, _) in enumerate(frames):
            if kind not in _OWN:
                self._handle(lane, frames[:position])
                self._peers.flush()
                await self._came_up.wait()
                return frames[position:]
        return frames

    def _handle(self, lane: Lane, frames: Frames) -> None:
        handlers = self._peers.handlers
        node = self.node
        for kind, body in frames:
            handler = handlers.get(kind)  # type: ignore[call-overload]  # a Kind is an int
            if handler is None:
                self._handle_own(lane, kind, body)
            else:
                try:
                    handler(node, body)
                except Exception as error:  # noqa: BLE001 - a bug there must not end the node
                    _log.exception("handler_failed", error, node=node, kind=kind)
                    self.lost(f"a message of kind {kind} could not be handled")
            if self.ended is not None:
                return

    def _handle_own(self, lane: Lane, kind: int, body: bytes) -> None:
        try:
            if kind == _HEARTBEAT:
                self._got_heartbeat(lane, body)
            elif kind == _ANSWER:
                self._got_answer(lane, body)
            else:
                self.lost(f"it sends messages of kind {kind}, which this node does not handle")
        except ValueError as error:
            self.lost(f"its heartbeats cannot be read: {error}")

    def _got_heartbeat(self, lane: Lane, body: bytes) -> None:
        if not BEAT.size <= len(body) <= BEAT.size + DIGEST_BYTES_MAX:
            raise ValueError(f"{len(body)} bytes")
        _, sent = BEAT.unpack_from(body)
        if lane is Lane.BULK and len(body) > BEAT.size:
            self.lets_pass = bool(body[BEAT.size] & _PASSING)
        self._put(lane, _ANSWER, ANSWER.pack(sent))
        if not self._heard[lane]:
            self._heard[lane] = True
            self._come_up()
        if self.up and lane is Lane.CONTROL:
            self._peers.got_digest(self, body[BEAT.size :])

    def _got_answer(self, lane: Lane, body: bytes) -> None:
        if len(body) != ANSWER.size:
            raise ValueError(f"{len(body)} bytes")
        (sent,) = ANSWER.unpack(body)
        if lane is Lane.CONTROL:
            self.pulse.got_answer(sent, trio.current_time())
        else:
            self.bulk_pulse.got_answer(sent)
        self._come_up()

    def _come_up(self) -> None:
        answered = self.pulse.answered and self.bulk_pulse.answered
        if answered and all(self._heard) and not self.up and self.ended is None:
            self.up = self.was_up = True
            self._came_up.set()
            self._peers.came_up(self)

    def is_late(self, now: float) -> bool:
        """Whether the peer has not answered for too long, while this node listened."""
        late_s = now - self._wake_at
        if late_s > self._options.heartbeat_s / 2:
            self.pulse.excuse(late_s, now)
            self._wake_at = now
        return self.pulse.late(now)

    async def _beat(self) -> None:
        due = trio.current_time()
        while True:
            now = trio.current_time()
            self._peers.expire(now)
            bulk = self.pipes[Lane.BULK]
            if self.is_late(now):
                self.lost(f"no answer for {self._options.timeout_s:g} s")
            elif self.bulk_pulse.late(now, written=bulk.written_bytes):
                self.lost(f"its bulk lane is stuck for {self._options.bulk_timeout_s:g} s")
            elif self._brim.late(now, waiting=bulk.waiting_bytes, written=bulk.written_bytes):
                self.lost(f"it is too slow: {bulk.waiting_bytes} bytes wait for it")
            if self.ended is not None:
                return
            if now >= due:
                self._send_beats(now, bulk)
                due = max(due + self._options.heartbeat_s, now)
            # A beat sent at this very moment is not late before the moment after its deadline.
            self._wake_at = min(due, self.pulse.deadline + self._options.heartbeat_s / 4)
            await trio.sleep_until(self._wake_at)

    def _send_beats(self, now: float, bulk: Pipe) -> None:
        digest = self._peers.digest_for(self.node)
        beat = BEAT.pack(self._peers.boot, now)
        self._put(Lane.CONTROL, _HEARTBEAT, beat, digest)
        if self.bulk_pulse.due(now):
            self._put(Lane.BULK, _HEARTBEAT, beat, _UNDERSTOOD)
            self.bulk_pulse.sent(now, behind=bulk.queued_bytes, written=bulk.written_bytes)
        self._peers.flush()

    def _put(self, lane: Lane, kind: int, *pieces: bytes) -> None:
        pipe = self.pipes[lane]
        pipe.put(kind, pieces)
        self._peers.mark_dirty(self, pipe)

    async def _drain(self, pipe: Pipe) -> None:
        def relieve() -> None:
            if pipe.turned_away and self._has_room():
                for each in self.pipes:
                    each.turned_away = each.delivered = False
                self._peers.relieved(self)

        try:
            await pipe.drain(relieve)
        except trio.BrokenResourceError as error:
            self.lost(f"the connection broke: {error}")

    def _has_room(self) -> bool:
        """For some of those that were turned away: who still is not let in asks again."""
        bulk, low_bytes = self.pipes[Lane.BULK], self._options.low_bytes
        return self._small_bytes <= low_bytes and (bulk.delivered or bulk.large_bytes <= low_bytes)

    def lost(self, reason: str) -> None:
        """Down at once. Not from inside `send` or `flush`."""
        self.end(reason)
        self._peers.went_down(self, reason)
