"""The AMQP consumers of this node that are members of a vhost's groups, wherever those are."""

from collections.abc import Callable

from broker.streams.remote_member import RemoteMember
from broker.streams.service import StreamService
from broker.timers import Timers
from queues.consumers import Consumer
from queues.stream.membership import Groups
from queues.stream.stream import Stream
from queues.stream.wishes import ReaderWishes


class RemoteGroups:
    """What a vhost asks of its groups, wherever they are; `book` is this node's own of them."""

    def __init__(self, vhost: str, service: StreamService, timers: Timers, book: Groups) -> None:
        self._vhost = vhost
        self._service = service
        self._timers = timers
        self._book = book
        self._members: dict[str, dict[RemoteMember, None]] = {}  # on this node, by group

    trouble: str | None = None

    def when_ready(self, action: Callable[[], None]) -> None:
        action()

    def consume(
        self,
        stream: Stream,
        consumer: Consumer,
        wishes: ReaderWishes,
        group: str,
        instance: str,
        then: Callable[[str | None], None],
    ) -> None:
        """Without an answer for long it joins when it can, and may be cancelled then."""
        member = RemoteMember(
            self._service,
            self._timers,
            self._vhost,
            stream,
            consumer,
            wishes,
            group,
            instance,
            then,
            self._forget,
        )
        if not member.gone:
            self._members.setdefault(group, {})[member] = None

    def _forget(self, member: RemoteMember) -> None:
        members = self._members.get(member.group, {})
        members.pop(member, None)
        if not members:
            self._members.pop(member.group, None)

    def look(self, group: str) -> None:
        """Something moved in a group, whoever has it says."""
        for member in list(self._members.get(group, ())):
            member.look()

    def stream_changed(self, stream: str, partitions: int) -> None:
        self._book.stream_changed(stream, partitions)
