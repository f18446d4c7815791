"""Publishing: from the publish methods of one read to one append per queue."""

from typing import TYPE_CHECKING, Final

from pamqp import commands

from broker.channel.confirms import ConfirmTracker, Receipt
from broker.channel.inspection import PASSING, Inspector
from broker.protocol import methods
from broker.protocol.content import reframe
from broker.protocol.runs import ContentRun
from queues.message import Message, messages_of
from queues.stream.stream import Stream
from queues.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.channel.link import Link
    from broker.protocol.frames import Content
    from broker.routes import Route, RouteCache, Target
    from queues.consumers import Later

# Property flags → size of the content header where these alone are set: nothing to look into.
_PLAIN: Final = {0: 14, 0x1000: 15}


class Publisher:
    """The publishing side of a channel."""

    def __init__(
        self,
        number: int,
        link: "Link",
        plain_properties: set[bytes],
        extend_lease: "Callable[[int, int | None], bool | Later]",
    ) -> None:
        self._number = number
        self._link = link
        self._cache: RouteCache = link.vhost.routes_for(link.user)
        self.inspector = Inspector(
            link.vhost, link.user, plain_properties, self._return, extend_lease
        )
        self.confirms: ConfirmTracker | None = None
        self.closed = False  # with its channel
        self.tally = Tally()  # the channel's

    def publish(self, items: "Sequence[Content]") -> None:
        """Route a batch and hand each queue its share, in order, at once.

        A mistake in the middle raises; what came before it is published, what comes after is not.
        """
        confirms = self.confirms
        if confirms is None:
            self.publish_with(items, None)
            return
        receipt = confirms.begin()
        try:
            self.publish_with(items, receipt)
        finally:
            confirms.next_tag = receipt.last + 1
            receipt.stored([])

    def publish_with(self, items: "Sequence[Content]", receipt: Receipt | None) -> None:
        """As `publish`, with a receipt of the caller's, which it completes itself."""
        if isinstance(items, ContentRun) and self._publish_run(items, receipt):
            return
        shares: dict[Target, list[Message]] = {}
        try:
            self._route(items, shares, receipt)
        finally:
            if receipt is not None:
                receipt.open += len(shares)
            for target, messages in shares.items():
                target.publish(messages, receipt)

    def _publish_run(self, run: ContentRun, receipt: Receipt | None) -> bool:
        """Publishes that are all alike: what is known of one holds for all. False if it is not."""
        route = self._cache.routes.get(run.args) or self._cache.resolve(run.args)
        if not route.targets or not self._is_plain(run):
            return False
        count = len(run)
        first = receipt.last + 1 if receipt is not None else 1
        _count(route, count)
        self.tally.publish += count
        if receipt is not None:
            receipt.last += count
            receipt.open += len(route.targets)
        for target in route.targets:
            if isinstance(target, Stream):
                target.publish_run(run, route.address, first, receipt)
            else:
                target.publish(messages_of(run, route.address, first), receipt)
        return True

    def _is_plain(self, run: ContentRun) -> bool:
        """Whether the properties ask for nothing."""
        if _PLAIN.get(run.flags) == run.header_bytes:
            return True
        return not run.flags & PASSING and run.properties in self.inspector.plain

    def check(self, items: "Sequence[Content]") -> None:
        """Raise what publishing would raise for exchange and permissions, without publishing."""
        for args, *_ in items:
            if args not in self._cache.routes:
                self._cache.resolve(args)

    def _route(
        self,
        items: "Sequence[Content]",
        shares: "dict[Target, list[Message]]",
        receipt: Receipt | None,
    ) -> None:
        """Fill `shares`. The hot loop: plain messages with known routes cost a microsecond each."""
        number = self._number
        routes = self._cache.routes
        inspector = self.inspector
        plain_properties = inspector.plain
        tag = began = receipt.last if receipt is not None else 0
        last: Route | None = None
        run_began = tag
        previous: tuple[Target, ...] | None = None
        append: Callable[[Message], None] | None = None
        try:
            for args, frames, header_bytes, flags, body_bytes in items:
                route = routes.get(args)
                if route is None:
                    route = self._cache.resolve(args)
                if route is not last:
                    _count(last, tag - run_began)
                    last, run_began = route, tag
                message = Message(route.address, frames, header_bytes, flags, body_bytes, number)
                targets = route.targets
                if targets is None or (
                    _PLAIN.get(flags) != header_bytes
                    and (flags & PASSING or frames[19 : 7 + header_bytes] not in plain_properties)
                ):
                    targets = inspector.inspect(message, route)
                    if route.targets is None:
                        route.exchange.published_out += len(targets)
                tag += 1
                message.sequence = tag
                if targets is previous and append is not None:
                    append(message)
                elif len(targets) == 1:
                    share = shares.setdefault(targets[0], [])
                    share.append(message)
                    append = share.append
                    previous = targets
                elif targets:
                    shares.setdefault(targets[0], []).append(message)
                    for target in targets[1:]:
                        shares.setdefault(target, []).append(message.copy())
                elif route.mandatory:
                    self._return(message, route)
                else:
                    self.tally.drop_unroutable += 1
        finally:
            _count(last, tag - run_began)
            self.tally.publish += tag - began
            if receipt is not None:
                receipt.last = tag

    def _return(self, message: Message, route: "Route") -> None:
        """Mandatory, and no queue took it: back to the publisher, before its confirm."""
        self.tally.return_unroutable += 1
        if self.closed:
            return
        head = methods.encode(
            self._number,
            commands.Basic.Return,
            reply_code=312,
            reply_text="NO_ROUTE",
            exchange=route.exchange.name,
            routing_key=route.key,
        )
        content = message.frames
        if len(content) > self._link.frame_max:
            content = reframe(
                content,
                message.header_bytes,
                message.body_bytes,
                channel=self._number,
                frame_max=self._link.frame_max,
            )
        self._link.outbox.write(head + content)
        self._link.mark_dirty()


def _count(route: "Route | None", count: int) -> None:
    """So many messages in a row took this route."""
    if route is not None:
        route.exchange.published_in += count
        if route.targets is not None:
            route.exchange.published_out += count * len(route.targets)
