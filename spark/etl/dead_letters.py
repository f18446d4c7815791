"""What a dead letter looks like in its stream: the record as it was, and headers that say why.

The stream is `<topic>.dlq`. Key and value are those of the record; its own headers are kept, as
text, and those below say the rest. A record of such a stream may become a dead letter, too.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final, TypeVar

from broker.protocol.chunk import Record
from broker.protocol.stream_messages import Partition
from spark.etl.letters_table import DeadLetter, Header

T = TypeVar("T")
SUFFIX: Final = ".dlq"
JOB: Final = "x-etl-job"
TOPIC: Final = "x-etl-topic"
PARTITION: Final = "x-etl-partition"
OFFSET: Final = "x-etl-offset"
TIMESTAMP: Final = "x-etl-timestamp"  # of the record, ms since 1970
ERROR_TYPE: Final = "x-etl-error-type"
ERROR: Final = "x-etl-error"
REPLAYS: Final = "x-etl-replays"  # how often it was sent again before; 0 if never
COPIES: Final = "x-etl-copies"  # how often a dead letter itself was sent to its stream again
OURS: Final = (JOB, TOPIC, PARTITION, OFFSET, TIMESTAMP, ERROR_TYPE, ERROR, REPLAYS, COPIES)

STRANGER: Final = "not a dead letter"  # error type of what somebody else put into the stream
OFFSET_MAX: Final = 2**63 - 1
COUNT_MAX: Final = 2**31 - 1
MOMENT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, that of databases
_DIGITS_MAX: Final = 19


def dlq_of(topic: str) -> str:
    """The stream of a topic's dead letters."""
    return topic + SUFFIX


def own_headers(headers: Mapping[str, T]) -> dict[str, T]:
    """A record's own, which its dead letter keeps and its replay gets back."""
    return {name: value for name, value in headers.items() if name not in OURS}


def is_copy(record: Record) -> bool:
    """Of a dead letter that was in the stream before."""
    try:
        return COPIES in record.headers and JOB in record.headers
    except ValueError:
        return False


def replay_headers(headers: Mapping[str, object], count: int) -> dict[str, object]:
    """Of a record that is sent again for the so manyeth time; a dead letter stays one."""
    if JOB in headers:
        return {**headers, COPIES: str(count)}
    return {**own_headers(headers), REPLAYS: str(count)}


def read_letter(place: Partition, record: Record) -> DeadLetter:
    """Of a record in a `.dlq` stream. What no job has put there is a letter as well, of no job."""
    try:
        headers = {name: _header(value) for name, value in record.headers.items()}
        partition = _needed(headers, PARTITION, COUNT_MAX)
        offset = _needed(headers, OFFSET, OFFSET_MAX)
        job, topic = _text(headers[JOB]), _text(headers[TOPIC])
    except (ValueError, KeyError) as error:
        return _stranger(place, record, error)
    return DeadLetter(
        job,
        topic,
        partition,
        offset,
        _text(headers.get(ERROR_TYPE)) or "unknown",
        _text(headers.get(ERROR)),
        record.value,
        record.key,
        own_headers(headers),
        _number(headers, TIMESTAMP, MOMENT_MS_MAX),
        moment_of(record),
        _number(headers, REPLAYS, COUNT_MAX) or 0,
        dlq_topic=place.stream,
        dlq_partition=place.number,
        dlq_offset=record.offset,
    )


def _stranger(place: Partition, record: Record, error: Exception) -> DeadLetter:
    said = f"there is no header {error}" if isinstance(error, KeyError) else str(error)
    return DeadLetter(
        "",
        place.stream,
        place.number,
        record.offset,
        STRANGER,
        said,
        record.value,
        record.key,
        {},
        moment_of(record),
        moment_of(record),
        dlq_topic=place.stream,
        dlq_partition=place.number,
        dlq_offset=record.offset,
    )


def _needed(headers: Mapping[str, Header], name: str, most: int) -> int:
    found = _number(headers, name, most)
    if found is None:
        raise ValueError(f"header {name} is {_text(headers[name])[:40]!r}")
    return found


def _number(headers: Mapping[str, Header], name: str, most: int) -> int | None:
    text = _text(headers.get(name))
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    return int(text) if int(text) <= most else None


def moment_of(record: Record) -> int:
    """Its time, which is the producer's, and so anything."""
    return min(max(record.timestamp_ms, 0), MOMENT_MS_MAX)


def _text(value: Header) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _header(value: object) -> Header:
    """Text where it is text; what else AMQP has as text, tables and lists as JSON."""
    match value:
        case None | str():
            return value
        case bytes() | bytearray():
            return _text_or_bytes(bytes(value))
        case datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value, default=str)


def _text_or_bytes(value: bytes) -> Header:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
