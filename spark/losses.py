"""What happens when records are gone that a query was to read: failOnDataLoss."""

import logging
from dataclasses import dataclass
from typing import Final

from broker.protocol.stream_messages import Partition
from spark.errors import DataLossError

_LOG: Final = logging.getLogger("leveret.spark")


@dataclass(frozen=True, slots=True)
class Losses:
    fail: bool

    def gone(self, what: str) -> None:
        """Raises DataLossError, or says that it is skipped."""
        if self.fail:
            raise DataLossError(
                f"{what}, before this query has read it; failOnDataLoss=false would skip it"
            )
        _LOG.warning("%s, before this query has read it: skipped", what)

    def overtaken(self, partition: Partition, start: int, first: int) -> None:
        """Retention was faster than the query."""
        self.gone(
            f"stream {partition.stream!r} partition {partition.number}: "
            f"offsets {start} to {first - 1} were deleted by retention"
        )

    def made_anew(self, partition: Partition, start: int, following: int) -> None:
        """The stream has less than was read of it: it is another one with the same name."""
        self.gone(
            f"stream {partition.stream!r} partition {partition.number} was deleted and declared "
            f"again: it ends at offset {following}, and {start} was reached"
        )

    def replaced(self, stream: str) -> None:
        """By its uid it is another one with the same name, however much it has."""
        self.gone(f"stream {stream!r} was deleted and declared again")

    def no_longer_there(self, what: str) -> None:
        self.gone(f"stream {what} was deleted")
