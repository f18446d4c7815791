"""The target of a PostgreSQL sink: made if it is missing, compared with the rows if it is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructField
from sqlalchemy import Connection, text

from spark.etl.postgres_types import check_columns, check_name, fits, quoted, statement, type_of
from spark.etl.store_errors import SinkError

_COLUMNS: Final = text("""
    SELECT attname AS name, format_type(atttypid, NULL) AS type,
           attnotnull AND NOT atthasdef AND attidentity = '' AS needed,
           attgenerated <> '' OR attidentity = 'a' AS made
    FROM pg_attribute
    WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped
""")
_KEYS: Final = text("""
    SELECT array_agg(attname::text) AS columns
    FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
    WHERE indrelid = to_regclass(:table) AND indisunique AND indisvalid
          AND indpred IS NULL AND indexprs IS NULL
    GROUP BY indexrelid
""")


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str  # "": where the search path leads
    table: str

    @classmethod
    def of(cls, name: str) -> "TableName":
        """`table` or `schema.table`. Raises SinkError."""
        schema, dot, table = name.rpartition(".")
        check_name(table)
        if dot:
            check_name(schema)
        return cls(schema, table)

    def beside(self, table: str) -> str:
        """Another in the same schema, quoted."""
        return f"{quoted(self.schema)}.{quoted(table)}" if self.schema else quoted(table)

    @property
    def quoted(self) -> str:
        return self.beside(self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


def prepare(
    connection: Connection, name: TableName, fields: Sequence[StructField], key: Sequence[str]
) -> None:
    """Raises SinkError if the table is there and does not take such rows."""
    check_columns(fields)
    for column in key:
        if column not in [field.name for field in fields]:
            raise SinkError(f"table {name}: the key {column!r} is no column of the rows")
    found = {row.name: row for row in connection.execute(_COLUMNS, {"table": name.quoted})}
    if not found:
        _create(connection, name, fields, key)
        return
    for field in fields:
        row = found.pop(field.name, None)
        own = type_of(field)
        if row is None:
            raise SinkError(
                f"table {name} has no column {field.name!r}; "
                f"ALTER TABLE {name.quoted} ADD COLUMN {quoted(field.name)} {own} would add it"
            )
        if row.made:
            raise SinkError(f"table {name}: PostgreSQL makes the values of {field.name!r} itself")
        if not fits(field, row.type):
            raise SinkError(
                f"table {name}: column {field.name!r} is {row.type}, and the rows have "
                f"{field.dataType.simpleString()} ({own})"
            )
    for other, row in found.items():
        if row.needed:
            raise SinkError(f"table {name}: column {other!r} may not be null, and the rows lack it")
    if key:
        _check_key(connection, name, key)


def _create(
    connection: Connection, name: TableName, fields: Sequence[StructField], key: Sequence[str]
) -> None:
    columns = [f"{quoted(field.name)} {type_of(field)}" for field in fields]
    if key:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    connection.execute(statement(f"CREATE TABLE {name.quoted} ({', '.join(columns)})"))


def _check_key(connection: Connection, name: TableName, key: Sequence[str]) -> None:
    for row in connection.execute(_KEYS, {"table": name.quoted}):
        if sorted(row.columns) == sorted(key):
            return
    columns = ", ".join(map(quoted, key))
    raise SinkError(
        f"table {name} has no unique index on ({columns}), which an upsert by that key needs; "
        f"CREATE UNIQUE INDEX ON {name.quoted} ({columns}) would make it"
    )
