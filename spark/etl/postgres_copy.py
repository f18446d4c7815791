"""What tasks do for a PostgreSQL sink: Arrow's batches as CSV, copied into a staging table.

Arrow writes the CSV, so that there is no Python for each row but where a column is binary. A task
copies in one transaction and answers with its number and how many rows it had; what goes wrong with
the database is an answer, too, for only the driver can decide what to do about it.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
from pyarrow import compute, csv

from spark.etl.postgres_refusals import is_refusal
from spark.etl.postgres_types import ROW, WRITER, quoted

ANSWER: Final = "writer bigint, rows bigint, problem string, lost boolean"
CONNECT_S: Final = 2.0  # for a server that is away; then the driver may try again, or stop
CONNECT_TIMEOUT_S: Final = 10
PAUSE_S: Final = 0.5
_OPTIONS: Final = csv.WriteOptions(include_header=False, quoting_style="needed")
_ANSWER: Final = pa.schema(
    [
        ("writer", pa.int64()),
        ("rows", pa.int64()),
        ("problem", pa.string()),
        ("lost", pa.bool_()),
    ]
)


class RowProblemError(ValueError):
    """A value that PostgreSQL cannot hold."""


@dataclass(frozen=True)
class Copying:
    """Of one batch: a function for mapInArrow."""

    address: str = field(repr=False)  # as libpq has it, with the password
    staging: str  # quoted
    columns: tuple[str, ...]
    key: tuple[str, ...]  # columns that may not be null

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        writer = secrets.randbits(63)
        try:
            yield _answer(writer, self._copy(writer, iter(batches)))
        except psycopg.OperationalError as error:
            yield _answer(writer, 0, _one_line(error), lost=not is_refusal(error))
        except (psycopg.Error, RowProblemError) as error:
            yield _answer(writer, 0, _one_line(error))

    def _copy(self, writer: int, batches: Iterator[Any]) -> int:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        columns = ", ".join(map(quoted, (WRITER, ROW, *self.columns)))
        statement = f"COPY {self.staging} ({columns}) FROM STDIN (FORMAT csv)".encode()
        rows = 0
        with (
            connect(self.address) as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for batch in chain((first,), batches):
                self._check_key(batch)
                copy.write(encode(batch, writer, rows))
                rows += int(batch.num_rows)
        return rows

    def _check_key(self, batch: Any) -> None:
        for name in self.key:
            if batch.column(self.columns.index(name)).null_count:
                raise RowProblemError(
                    f"column {name!r} is null in some rows, and it is among the keys: a step of "
                    f"kind validate with required = [{name!r}] keeps such rows out"
                )


def connect(address: str) -> psycopg.Connection[Any]:
    """Waits for a server that is away for a while."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            connection = psycopg.connect(address, connect_timeout=CONNECT_TIMEOUT_S)
            connection.execute("SET TIME ZONE 'UTC'")  # for what `encode` writes without a zone
            return connection
        except psycopg.OperationalError as error:
            if is_refusal(error) or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)


def encode(batch: Any, writer: int, first_row: int) -> bytes:
    """Rows as PostgreSQL reads CSV: null is nothing, an empty text is quoted."""
    if not batch.num_rows:
        return b""
    count = batch.num_rows
    arrays = [pa.repeat(pa.scalar(writer, pa.int64()), count)]
    arrays.append(pa.array(np.arange(first_row, first_row + count, dtype=np.int64)))
    arrays += [_column(batch.column(place), name) for place, name in enumerate(batch.schema.names)]
    table = pa.table(arrays, names=[str(place) for place in range(len(arrays))])
    output = pa.BufferOutputStream()
    csv.write_csv(table, output, _OPTIONS)
    found: bytes = output.getvalue().to_pybytes()
    return found


def _column(array: Any, name: str) -> Any:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        shown = [None if value is None else "\\x" + value.hex() for value in array.to_pylist()]
        return pa.array(shown, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return array.view(pa.timestamp(kind.unit))  # in UTC; Arrow writes zones very slowly
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        _check_text(array, name)
    return array


def _check_text(array: Any, name: str) -> None:
    if compute.any(compute.match_substring(array, "\0")).as_py():
        raise RowProblemError(
            f"column {name!r} has a text with a zero byte, which PostgreSQL cannot hold: "
            f"replace({name}, char(0), '') takes it out"
        )


def _answer(writer: int, rows: int, problem: str | None = None, *, lost: bool = False) -> Any:
    values = {"writer": writer, "rows": rows, "problem": problem, "lost": lost}
    return pa.RecordBatch.from_pylist([values], schema=_ANSWER)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
