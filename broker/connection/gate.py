"""What of a connection's methods has to wait: for the disk, for an alarm's end, for the rate."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broker.connection.pace import Pace
from broker.protocol.constants import BASIC_PUBLISH

if TYPE_CHECKING:
    from broker.channel.channel import Channel
    from broker.connection.backlogs import Backlogs
    from broker.node import Node


class Gate:
    """Stands before the channels. What it holds is kept in the backlogs."""

    def __init__(
        self,
        node: "Node",
        backlogs: "Backlogs",
        on_blocked: Callable[[str], None],
        go_on: Callable[[], None],
    ) -> None:
        self._node = node
        self._backlogs = backlogs
        self._on_blocked = on_blocked  # a publish has to wait because of an alarm
        self.rate_per_s = node.config.publish_rate
        self._pace = Pace(self.rate_per_s, node.timers, go_on) if self.rate_per_s else None
        self.publishes = False  # the client has published at least once

    def holds(self, channel: "Channel", key: int) -> bool:
        """Whether a method that has come must wait."""
        reason = self._node.blocked
        if key == BASIC_PUBLISH:
            self.publishes = True
            if reason is not None:
                self._on_blocked(reason)
        return self._backlogs.holds(channel, key, blocked=reason is not None)

    def admit(self, channel: "Channel", items: Sequence[Any]) -> Sequence[Any]:
        """Those of some publishes that may go now; the others are kept back."""
        if self._pace is None:
            return items
        granted = self._pace.take(len(items))
        if granted < len(items):
            rest = (channel.number, BASIC_PUBLISH, items[granted:])
            self._backlogs.keep_first(channel, rest)
        return items[:granted]

    @property
    def over_rate(self) -> bool:
        """Publishes wait for the rate to allow them."""
        return self._pace is not None and self._pace.waits

    @property
    def closed(self) -> bool:
        """No publish may go now."""
        return self.over_rate or self._node.blocked is not None

    def stop(self) -> None:
        if self._pace is not None:
            self._pace.stop()
