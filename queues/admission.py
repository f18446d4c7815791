"""What a queue does with published messages that need a closer look, before it takes them."""

from typing import TYPE_CHECKING, Protocol

from queues.bell import Clock
from queues.dedup import DedupWindow, digest_of_body
from queues.expiry import Expiry
from queues.groups import group_of
from queues.limits import LengthLimit
from queues.message import Message
from queues.options import QueueOptions
from queues.ready import Ready

if TYPE_CHECKING:
    from queues.commands import Id


class Seen(Protocol):
    """Which ids of messages came lately."""

    def seen(self, digest: bytes, now_ms: int) -> bool: ...


class Admitted:
    """A batch, sorted. Duplicates are in none of the lists: they are as good as taken."""

    __slots__ = ("accepted", "delayed", "ids", "refused")

    def __init__(self) -> None:
        self.accepted: list[Message] = []
        self.delayed: list[Message] = []  # some of the accepted ones
        self.ids: list[Id] = []
        self.refused: list[Message] = []

    @property
    def prompt(self) -> list[Message]:
        """Those that are not delayed."""
        if not self.delayed:
            return self.accepted
        late = set(map(id, self.delayed))
        return [message for message in self.accepted if id(message) not in late]


class Admission:
    """Length limits, duplicates, delays, and marks that only some queues need of a message."""

    __slots__ = ("_clock", "_expiry", "_options", "_seen", "is_close", "limit")

    def __init__(self, clock: Clock, options: QueueOptions, expiry: Expiry) -> None:
        self._clock = clock
        self._expiry = expiry
        self._seen: DedupWindow | None = None  # of a queue in memory, once it is needed
        self.configure(options)

    def configure(self, options: QueueOptions) -> None:
        self._options = options
        self.limit = LengthLimit(options)
        # Whether each message has to be looked at, and not only those that ask for something.
        self.is_close = bool(
            self.limit.refuses
            or options.message_delay_ms
            or options.dedup_content
            or options.message_groups
            or options.priority_aging_ms
        )

    def admit(
        self, messages: list[Message], ready: Ready, ahead: int, seen: Seen | None
    ) -> Admitted:
        """Sort a batch that comes behind `ahead` others.

        Without `seen`, whoever knows which ids came lately, that is kept in mind here.
        """
        options, now = self._options, self._clock.now_ms()
        batch = Admitted()
        new: set[bytes] = set()
        known = seen or self._window(now)
        for message in messages:
            digest = _digest(message, options)
            if digest is not None and (digest in new or known.seen(digest, now)):
                continue
            delay_ms = options.message_delay_ms
            if message.wishes is not None and message.wishes.delay_ms is not None:
                delay_ms = message.wishes.delay_ms
            if not delay_ms and self.limit.refuses:
                if not self.limit.fits(message, ahead, ready.size_bytes):
                    batch.refused.append(message)
                    continue
                ahead += 1
            if digest is not None:
                new.add(digest)
                batch.ids.append((digest, now + options.dedup_window_ms))
            if delay_ms:
                _put_off(message, delay_ms, now)
                batch.delayed.append(message)
            if options.message_groups:
                message.group = group_of(message)
            message.enqueued_ms = now + delay_ms
            message.wishes = None
            batch.accepted.append(message)
        self._expiry.stamp(batch.prompt)
        if batch.delayed:
            self._expiry.stamp_delayed(batch.delayed)
        if seen is None:
            for digest, until_ms in batch.ids:
                self._window(now).add(digest, until_ms)
        return batch

    def _window(self, now_ms: int) -> DedupWindow:
        if self._seen is None:
            self._seen = DedupWindow()
        self._seen.evict(now_ms)
        return self._seen


def _digest(message: Message, options: QueueOptions) -> bytes | None:
    """What a message is known by, where duplicates are not welcome."""
    if not options.dedup_window_ms:
        return None
    if message.wishes is not None and message.wishes.dedup_id is not None:
        return message.wishes.dedup_id
    return digest_of_body(message.body) if options.dedup_content else None


def _put_off(message: Message, delay_ms: int, now_ms: int) -> None:
    message.due_ms = now_ms + delay_ms
    if message.expires_at is not None:
        message.expires_at += delay_ms  # it lives as long as it would have, but later


def retry_delay_ms(options: QueueOptions, failures: int) -> int:
    """How long to wait before the next try after so many failures, of which there was at least one.

    The exponent is bounded: no delay is that long, and no float is.
    """
    factor = options.retry_backoff ** min(failures - 1, 64)
    return int(min(options.retry_delay_ms * factor, options.retry_max_delay_ms))
