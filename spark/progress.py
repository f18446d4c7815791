"""What a streaming read tells the broker of itself: the offsets of a consumer group.

The group has no members, and no say in what is read: Spark's checkpoint has. It shows how far the
query got and how far it is behind. Until the first batch is done it is also where the query began,
which Spark asks for again when it crashes in that batch, and does not keep itself.
"""

import hashlib
import logging
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from spark import connections
from spark.addressing import Broker
from spark.errors import OptionError
from spark.places import Offsets

_LOG: Final = logging.getLogger("leveret.spark")


class Progress:
    def __init__(self, broker: Broker, group: str, question: str) -> None:
        """`question`: what the query asked to begin with; where another one began is no answer."""
        self._broker = broker
        self._group = group
        self._mark = "start " + hashlib.sha256(question.encode()).hexdigest()[:16]
        self._told: Offsets = {}

    def began(self) -> Offsets | None:
        """Where this query began, if it has not finished a batch since."""
        committed = connections.ask(self._broker, lambda client: client.committed(self._group))
        found = {
            each: told.offset for each, told in committed.items() if told.metadata == self._mark
        }
        return found or None

    def begin(self, offsets: Offsets) -> None:
        """Raises OptionError if the group has members, who would not let it have their offsets."""
        try:
            self._tell(offsets, self._mark)
        except RefusedError as error:
            if error.status != Status.GROUP_NOT_EMPTY:
                raise
            raise OptionError(
                f"consumerGroup={self._group!r} has members; a query needs a group of its own"
            ) from None

    def reached(self, offsets: Offsets) -> None:
        """A batch is done. That it cannot be shown is no reason to stop."""
        if offsets == self._told:
            return
        try:
            self._tell(offsets, "")
        except RefusedError as error:
            _LOG.warning("the offsets of group %s are not kept: %s", self._group, error)

    def _tell(self, offsets: Offsets, mark: str) -> None:
        positions = tuple(wire.Position(*each, mark) for each in sorted(offsets.items()))
        request = wire.ResetOffsets(self._group, positions)
        connections.ask(self._broker, lambda client: client.connection.ask(request, wire.Empty))
        self._told = dict(offsets)
