"""The table of a PostgreSQL sink: made to fit the rows, or compared with them."""

from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from sqlalchemy import create_engine, text

from spark.etl.postgres_copy import RowProblemError, encode
from spark.etl.postgres_table import TableName, prepare
from spark.etl.store_errors import SinkError

# Spark's type, and PostgreSQL's.
TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "decimal(12,3)": "numeric(12,3)",
    "string": "text",
    "varchar(20)": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "array<int>": "jsonb",
    "map<string,int>": "jsonb",
    "struct<a:int>": "jsonb",
}


@dataclass
class Tables:
    engine: object

    def prepare(self, table, columns, key=()):
        fields = StructType.fromDDL(columns).fields
        with self.engine.begin() as connection:
            prepare(connection, TableName.of(table), fields, key)

    def run(self, statement):
        with self.engine.begin() as connection:
            found = connection.execute(text(statement))
            return found.all() if found.returns_rows else None


@pytest.fixture
def tables(database, spark):
    engine = create_engine(database)
    yield Tables(engine)
    engine.dispose()


def test_a_missing_table_is_made_with_types_that_hold_the_values(tables) -> None:
    names = [f"c{place}" for place in range(len(TYPES))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, TYPES, strict=True))
    tables.prepare("made", columns, ("c3", "c8"))
    rows = tables.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'made'::regclass AND attnum > 0"
    )
    assert dict(rows) == dict(zip(names, TYPES.values(), strict=True))
    tables.prepare("made", columns, ("c8", "c3"))  # it fits now, too


@pytest.mark.parametrize("name", ['a "quoted" name', "with:colon %s", "select", "übel"])
def test_names_may_hold_anything(tables, name) -> None:
    quoted = "`" + name + "`"
    tables.prepare(name, f"{quoted} int", (name,))
    tables.prepare(name, f"{quoted} int", (name,))


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("a bigint", "a int"),
        ("a numeric", "a bigint"),
        ("a varchar(5)", "a string"),
        ("a uuid, b int default 5, c text", "a string"),
        ("a jsonb", "a array<string>"),
        ("a jsonb", "a string"),
        ("a int, id bigint generated always as identity", "a int"),
        ("a int, b serial", "a int"),
    ],
)
def test_a_table_that_takes_the_rows_is_used_as_it_is(tables, table, rows) -> None:
    tables.run(f"CREATE TABLE found ({table})")
    tables.prepare("found", rows)


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        ("a int", "a int, b string", "has no column 'b'; ALTER TABLE .* ADD COLUMN \"b\" text"),
        ("a int", "a bigint", "'a' is integer, and the rows have bigint"),
        ("a text", "a int", "'a' is text"),
        ("a int", "a string", "'a' is integer"),
        ("a date", "a timestamp", "'a' is date"),
        ("a int, b int not null", "a int", "'b' may not be null, and the rows lack it"),
        ("a int generated always as identity", "a int", "makes the values of 'a' itself"),
        ("a int, b int", "a interval day to second", "cast it"),
        ("a int", "_etl_row int", "taken"),
    ],
)
def test_a_table_that_does_not_is_told_and_left_alone(tables, table, rows, said) -> None:
    tables.run(f"CREATE TABLE found ({table})")
    with pytest.raises(SinkError, match=said):
        tables.prepare("found", rows)


def test_an_upsert_needs_a_key_that_the_table_holds_to(tables) -> None:
    tables.run("CREATE TABLE found (a int, b int, c int, UNIQUE (a, b))")
    tables.run("CREATE UNIQUE INDEX ON found (c) WHERE a > 5")
    tables.prepare("found", "a int, b int, c int", ("b", "a"))
    for key in (("a",), ("c",)):
        with pytest.raises(SinkError, match="CREATE UNIQUE INDEX"):
            tables.prepare("found", "a int, b int, c int", key)
    with pytest.raises(SinkError, match="the key 'd'"):
        tables.prepare("found", "a int, b int, c int", ("d",))


@pytest.mark.parametrize("name", ["", "a" * 64, "a.", ".a", "a\0"])
def test_a_name_that_is_none_is_told(name) -> None:
    with pytest.raises(SinkError, match="no name"):
        TableName.of(name)


def test_arrow_becomes_what_postgresql_reads_as_the_same(postgres) -> None:
    texts = ["plain", "", None, 'a "b", c', "line\r\nbreak", "\\N", "\\.", "ü€\U0001f600", " x "]
    blobs = [b"", b"\x00\xff\\", None, b"x", b"", b"", b"", b"", b""]
    numbers = [0.1, float("inf"), None, float("-inf"), 1e-300, 5e-324, 1.7976931348623157e308, -0.0]
    batch = pa.record_batch(
        {
            "t": pa.array(texts, pa.string()),
            "b": pa.array(blobs, pa.binary()),
            "f": pa.array([*numbers, 3.0], pa.float64()),
        }
    )
    with postgres.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE x (w bigint, r bigint, t text, b bytea, f float8)")
        with cursor.copy("COPY x FROM STDIN (FORMAT csv)") as copy:
            copy.write(encode(batch, 2**63 - 1, 100))
        rows = cursor.execute("SELECT * FROM x ORDER BY r").fetchall()
    assert [row[:2] for row in rows] == [(2**63 - 1, 100 + place) for place in range(9)]
    assert [row[2] for row in rows] == texts
    assert [None if row[3] is None else bytes(row[3]) for row in rows] == blobs
    assert [row[4] for row in rows] == [*numbers, 3.0]


def test_a_zero_byte_in_a_text_is_told_with_its_column() -> None:
    batch = pa.record_batch({"name": pa.array(["fine", "a\0b"])})
    with pytest.raises(RowProblemError, match=r"'name'.*zero byte"):
        encode(batch, 1, 0)
