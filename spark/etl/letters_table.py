"""Dead letters in the ETL store: added once, found by what they are, and their replays counted."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, func, select, update

from spark.etl.database import insert_into
from spark.etl.store_tables import letters

TEXT_CHARS_MAX: Final = 4000  # of an error's message: a stack trace says it in its first lines
ROWS_AT_ONCE: Final = 500
Header = str | bytes | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a job could not take, as it was."""

    job: str
    topic: str
    partition: int
    offset: int
    error_type: str
    error_message: str
    raw_message: bytes | None
    key: bytes | None
    headers: Mapping[str, Header]  # the record's own
    message_ms: int | None  # the record's time
    failed_ms: int
    replay_count: int = 0  # how often it was sent again already
    replayed_ms: int | None = None
    dlq_topic: str | None = None  # where the letter itself is; None if that is not known
    dlq_partition: int | None = None
    dlq_offset: int | None = None
    id: int = field(default=0, compare=False)  # of the store's row


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters; what is None or empty does not matter."""

    ids: tuple[int, ...] = ()
    jobs: tuple[str, ...] = ()  # one of them …
    strangers_in: tuple[str, ...] = ()  # … or of no job, in one of these streams
    job: str | None = None
    topic: str | None = None
    error_type: str | None = None
    replayed: bool | None = None

    def condition(self) -> ColumnElement[bool]:
        columns = letters.c
        found: list[ColumnElement[bool]] = [columns.id > 0]
        if self.ids:
            found.append(columns.id.in_(self.ids))
        if self.jobs or self.strangers_in:
            is_stranger = (columns.job_name == "") & columns.topic.in_(self.strangers_in)
            found.append(columns.job_name.in_(self.jobs) | is_stranger)
        for column, wanted in (
            (columns.job_name, self.job),
            (columns.topic, self.topic),
            (columns.error_type, self.error_type),
        ):
            if wanted is not None:
                found.append(column == wanted)
        if self.replayed is not None:
            known = columns.replayed_at.is_not(None)
            found.append(known if self.replayed else ~known)
        return and_(*found)


def add(connection: Connection, rows: Iterable[DeadLetter]) -> int:
    """How many are new."""
    added = 0
    remaining = iter(rows)
    while some := list(islice(remaining, ROWS_AT_ONCE)):
        fresh = insert_into(connection, letters).on_conflict_do_nothing().returning(letters.c.id)
        added += len(connection.execute(fresh, [_row(each) for each in some]).all())
    return added


def find(
    connection: Connection, selection: Selection, *, after: int = 0, limit: int
) -> list[DeadLetter]:
    """By their ids, from behind one."""
    chosen = select(letters).where(selection.condition(), letters.c.id > after)
    return [_letter(row) for row in connection.execute(chosen.order_by(letters.c.id).limit(limit))]


def newest(connection: Connection, selection: Selection, *, limit: int) -> list[DeadLetter]:
    chosen = select(letters).where(selection.condition()).order_by(letters.c.id.desc())
    return [_letter(row) for row in connection.execute(chosen.limit(limit))]


def ids(connection: Connection, selection: Selection) -> list[int]:
    chosen = select(letters.c.id).where(selection.condition()).order_by(letters.c.id)
    return list(connection.execute(chosen).scalars())


def newest_at(connection: Connection, stream: str, partition: int) -> tuple[int, int] | None:
    """Offset and time of the letter that was copied last from there."""
    columns = letters.c
    here = (columns.dlq_topic == stream) & (columns.dlq_partition == partition)
    chosen = select(columns.dlq_offset, columns.failed_at).where(here)
    row = connection.execute(chosen.order_by(columns.id.desc()).limit(1)).first()
    return None if row is None else (row.dlq_offset, row.failed_at)


def count(connection: Connection, selection: Selection) -> int:
    counting = select(func.count()).select_from(letters).where(selection.condition())
    return connection.execute(counting).scalar_one()


def counts_by_job(connection: Connection) -> dict[str, int]:
    counting = select(letters.c.job_name, func.count()).group_by(letters.c.job_name)
    return {job: number for job, number in connection.execute(counting)}  # noqa: C416 - rows


def count_replays(connection: Connection, which: Sequence[int], now_ms: int) -> None:
    """One more for each."""
    for some in _pieces(which):
        connection.execute(
            update(letters)
            .where(letters.c.id.in_(some))
            .values(replay_count=letters.c.replay_count + 1, replayed_at=now_ms)
        )


def _pieces(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        yield numbers[start : start + ROWS_AT_ONCE]


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "job_name": _text(letter.job),
        "topic": _text(letter.topic),
        "partition": letter.partition,
        "offset": letter.offset,
        "error_type": _text(letter.error_type),
        "error_message": _text(letter.error_message),
        "raw_message": letter.raw_message,
        "key": letter.key,
        "headers": headers_json(letter.headers),
        "message_timestamp": letter.message_ms,
        "failed_at": letter.failed_ms,
        "replay_count": letter.replay_count,
        "replayed_at": letter.replayed_ms,
        "dlq_topic": letter.dlq_topic,
        "dlq_partition": letter.dlq_partition,
        "dlq_offset": letter.dlq_offset,
    }


def _letter(row: Any) -> DeadLetter:
    return DeadLetter(
        row.job_name,
        row.topic,
        row.partition,
        row.offset,
        row.error_type,
        row.error_message,
        None if row.raw_message is None else bytes(row.raw_message),
        None if row.key is None else bytes(row.key),
        read_headers(row.headers),
        row.message_timestamp,
        row.failed_at,
        row.replay_count,
        row.replayed_at,
        row.dlq_topic,
        row.dlq_partition,
        row.dlq_offset,
        row.id,
    )


def _text(value: str) -> str:
    """PostgreSQL's text has no zero bytes, and nobody's has lone surrogates."""
    known = value[:TEXT_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return known.encode("utf-8", "replace").decode()


# Headers: text as it is, bytes that are none as {"base64": …}


def headers_json(headers: Mapping[str, Header]) -> str:
    return json.dumps({name: _shown(value) for name, value in headers.items()})


def _shown(value: Header) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def read_headers(text: str) -> dict[str, Header]:
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) else value
        for name, value in json.loads(text).items()
    }
