"""Tables of stores that an earlier version has made, brought to the form of this one.

1 → 2   A dead letter is known by its own place in the stream of dead letters. It was known by the
        job and the record, so that the second failure of a record was lost. What version 1 has
        saved has no such place, and stays as it is.
"""

from typing import Final

from sqlalchemy import Connection, TextClause, inspect, text
from sqlalchemy.schema import AddConstraint, CreateIndex, CreateTable

from spark.etl.store_tables import letters

_OLD: Final = "ETLDeadLetter_1"
_NEW_COLUMNS: Final = ("dlq_topic", "dlq_partition", "dlq_offset")


def upgrade(connection: Connection, version: int) -> None:
    """In the transaction that notes the new version: a store is upgraded whole, or not."""
    if version < 2:
        if connection.dialect.name == "sqlite":
            _copy_letters(connection)
        else:
            _alter_letters(connection)


def _copy_letters(connection: Connection) -> None:
    """SQLite cannot take a constraint from a table."""
    old = ", ".join(f'"{each.name}"' for each in letters.columns if each.name not in _NEW_COLUMNS)
    connection.execute(text(f'ALTER TABLE "{letters.name}" RENAME TO "{_OLD}"'))
    connection.execute(CreateTable(letters))
    copying = f'INSERT INTO "{letters.name}" ({old}) SELECT {old} FROM "{_OLD}" ORDER BY id'  # noqa: S608 - names of our own
    connection.execute(text(copying))
    connection.execute(text(f'DROP TABLE "{_OLD}"'))
    _add_indexes(connection)


def _alter_letters(connection: Connection) -> None:
    for each in inspect(connection).get_unique_constraints(letters.name):
        connection.execute(_altered(f'DROP CONSTRAINT "{each["name"]}"'))
    for name in _NEW_COLUMNS:
        kind = letters.c[name].type.compile(connection.dialect)
        connection.execute(_altered(f'ADD COLUMN "{name}" {kind}'))
    for constraint in letters.constraints:
        if constraint.name == "ETLDeadLetter_place":
            connection.execute(AddConstraint(constraint, isolate_from_table=False))
    _add_indexes(connection)


def _altered(change: str) -> TextClause:
    return text(f'ALTER TABLE "{letters.name}" {change}')


def _add_indexes(connection: Connection) -> None:
    for index in sorted(letters.indexes, key=lambda each: str(each.name)):
        connection.execute(CreateIndex(index))
