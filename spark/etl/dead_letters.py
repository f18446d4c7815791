"""What a dead letter looks like in its stream: the record as it was, and headers that say why.

The stream is `<topic>.dlq`. Key and value are those of the record; its own headers are kept, but
for those that begin with `x-etl-`, which say the rest, as text.
"""

from collections.abc import Mapping
from typing import Final

SUFFIX: Final = ".dlq"
PREFIX: Final = "x-etl-"
JOB: Final = "x-etl-job"
TOPIC: Final = "x-etl-topic"
PARTITION: Final = "x-etl-partition"
OFFSET: Final = "x-etl-offset"
TIMESTAMP: Final = "x-etl-timestamp"  # of the record, ms since 1970
ERROR_TYPE: Final = "x-etl-error-type"
ERROR: Final = "x-etl-error"
REPLAYS: Final = "x-etl-replays"  # how often it was sent again before; 0 if never


def dlq_of(topic: str) -> str:
    """The stream of a topic's dead letters."""
    return topic + SUFFIX


def own_headers(headers: Mapping[str, object]) -> dict[str, object]:
    """A record's own, which its dead letter keeps and its replay gets back."""
    return {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
