"""Python functions, tables, casts and SQL in pipelines."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.etl import Pipeline, SpecError
from tests.etl.faker_data import Shop
from tests.etl.scene import PipelineScene, ordered, running

SCHEMA = "id bigint, user string, cents bigint"
RULES = """
def enrich(row):
    if row["cents"] is None:
        raise ValueError("no price")
    if row["cents"] == 13:
        return {"id": row["id"], "euros": "much"}
    if row["cents"] == 14:
        return 14
    if row["cents"] < 0:
        return None
    return {"id": row["id"], "euros": row["cents"] / 100, "other": 1}


def number(row):
    return {"id": row["id"]}


def doubled(frame):
    return frame.selectExpr("id * 2 AS id")


def nothing(frame):
    return None
"""


@pytest.fixture
def rules(etl: PipelineScene) -> str:
    """A module beside the pipeline, with a name of its own: others are imported already."""
    name = f"rules_{etl.directory.name}"
    (etl.directory / f"{name}.py").write_text(RULES)
    return name


def test_a_function_that_raises_fails_its_row_only(etl: PipelineScene, rules: str) -> None:
    source, target = etl.declare(), etl.target()
    prices = [100, None, 13, 250, -5, 14]
    etl.fill(source, [{"id": n, "user": "u", "cents": price} for n, price in enumerate(prices)])
    etl.send(source, [(b"broken", None)])
    steps = [
        {
            "name": "rich",
            "kind": "python",
            "input": "orders",
            "function": f"{rules}:enrich",
            "schema": "id bigint, euros double",
        }
    ]
    sinks = [{"kind": "stream", "input": "rich", "topic": target}]
    etl.run(etl.pipeline({"orders": {"topic": source, "schema": SCHEMA}}, sinks, steps))
    assert ordered(etl.rows(target)) == [{"id": 0, "euros": 1.0}, {"id": 3, "euros": 2.5}]
    kinds = {
        json.loads(record.value)["id"] if record.value != b"broken" else -1: (
            record.headers["x-etl-error-type"],
            record.headers["x-etl-error"],
        )
        for record in etl.letters(source)
    }
    assert kinds[1] == ("ValueError", "no price")
    assert kinds[2][0].startswith("Arrow")
    assert kinds[5] == ("TypeError", "the function returned int, not a dict or None")
    assert kinds[-1][0] == "DecodeError"
    assert len(etl.letters(source)) == len(kinds) == 4


def with_users(etl: PipelineScene, orders: str, users: str, target: str, **head: Any) -> Pipeline:
    """Orders with what a table has of their users."""
    table = {
        "kind": "table",
        "topic": users,
        "schema": "user string, name string, country string",
        "required": ["name"],
    }
    step = {
        "name": "named",
        "kind": "lookup",
        "input": "orders",
        "table": "users",
        "key": "user",
        "columns": {"who": "name", "country": "country"},
    }
    return etl.pipeline(
        {"orders": {"topic": orders, "schema": "id bigint, user string"}, "users": table},
        [{"kind": "stream", "input": "named", "topic": target}],
        [step],
        **head,
    )


def test_rows_find_what_a_table_has_now(etl: PipelineScene) -> None:
    """Two runs: what changed in between is seen by the second, and by no row of the first."""
    orders, users, target = etl.declare(), etl.declare(), etl.target()
    shop = Shop()
    people = shop.users(20)
    etl.fill(users, people, key="user")
    etl.send(users, [(b"nonsense", "u3"), (None, "u4")])
    pipeline = with_users(etl, orders, users, target)
    table = {row["user"]: row for row in people if row["user"] not in ("u3", "u4")}
    expected = []

    def order(first: int) -> None:
        rows = [{"id": first + n, "user": f"u{n}"} for n in range(25)]
        etl.fill(orders, rows, key="user")
        for row in rows:
            found = table.get(row["user"], {})
            expected.append({**row, "who": found.get("name"), "country": found.get("country")})

    order(0)
    etl.run(pipeline)
    table["u5"] = people[5] | {"country": "XX"}
    etl.fill(users, [table["u5"]], key="user")
    del table["u6"]
    etl.send(users, [(None, "u6")])
    order(100)
    etl.run(pipeline)
    assert ordered(etl.rows(target)) == ordered(expected)
    assert [record.value for record in etl.letters(users)] == [b"nonsense"]


def test_a_running_pipeline_sees_a_table_change_and_no_letter_in_what_is_deleted(
    etl: PipelineScene,
) -> None:
    orders, users, target = etl.declare(), etl.declare(), etl.target()
    etl.fill(users, [{"user": f"u{n}", "name": f"n{n}"} for n in range(3)], key="user")

    def order(number: int) -> None:
        etl.fill(orders, [{"id": number, "user": f"u{n}"} for n in range(3)], key="user")

    def names(number: int) -> list[tuple[str, str | None]]:
        rows = [row for row in etl.rows(target) if row["id"] == number]
        return sorted((row["user"], row["who"]) for row in rows)

    with running(etl, with_users(etl, orders, users, target, trigger="100ms")) as wait:
        order(1)
        wait(lambda: len(names(1)) == 3, "the first orders")
        etl.fill(users, [{"user": "u0", "name": "new"}], key="user")
        etl.send(users, [(None, "u1")])
        order(2)
        wait(lambda: len(names(2)) == 3, "orders after a change and a deletion")
        etl.fill(users, [{"user": "u1", "name": "again"}], key="user")
        etl.send(users, [(None, "u2"), (b"nonsense", "u2"), (None, "u2")])
        order(3)
        wait(lambda: len(names(3)) == 3, "orders after another change")
        wait(lambda: etl.letters(users), "the letter of what is nonsense")
    assert names(1) == [("u0", "n0"), ("u1", "n1"), ("u2", "n2")]
    assert names(2) == [("u0", "new"), ("u1", None), ("u2", "n2")]
    assert names(3) == [("u0", "new"), ("u1", "again"), ("u2", None)]
    assert [record.value for record in etl.letters(users)] == [b"nonsense"]


def test_casts_sql_and_frames(etl: PipelineScene, rules: str) -> None:
    source, target, second = etl.declare(), etl.target(), etl.target()
    texts = [{"id": str(n), "user": "u", "cents": None} for n in range(5)]
    etl.fill(source, [*texts, {"id": "seven"}])
    sinks = [
        {"kind": "stream", "name": "a", "input": "twice", "topic": target},
        {"kind": "stream", "name": "b", "input": "sql", "topic": second},
    ]
    steps: list[dict[str, Any]] = [
        {"name": "numbers", "kind": "cast", "input": "orders", "types": {"id": "int"}},
        {
            "name": "twice",
            "kind": "python",
            "inputs": ["numbers"],
            "function": f"{rules}:doubled",
        },
        {
            "name": "sql",
            "kind": "sql",
            "inputs": ["numbers", "twice"],
            "query": "SELECT id FROM numbers UNION ALL SELECT id FROM twice",
        },
    ]
    etl.run(etl.pipeline({"orders": {"topic": source, "schema": "id string"}}, sinks, steps))
    assert sorted(row["id"] for row in etl.rows(target)) == [0, 2, 4, 6, 8]
    assert sorted(row["id"] for row in etl.rows(second)) == [0, 0, 1, 2, 2, 3, 4, 4, 6, 8]
    (letter,) = etl.letters(source)
    assert letter.headers["x-etl-error"] == "column id is no int: seven"
    assert letter.headers["x-etl-error-type"] == "CastError"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "filter", "where": "nope > 1"}, "UNRESOLVED_COLUMN"),
    ({"kind": "select", "columns": {"x": "id +"}}, "PARSE_SYNTAX_ERROR"),
    ({"kind": "select", "columns": {"x": "explode(array(id))"}}, "UNSUPPORTED_GENERATOR"),
    ({"kind": "sql", "query": "SELECT * FROM elsewhere"}, "TABLE_OR_VIEW_NOT_FOUND"),
    ({"kind": "python", "function": "nowhere:f", "schema": "x int"}, "cannot import nowhere:f"),
    ({"kind": "python", "function": "json:loads", "schema": "x inte"}, "cannot read the schema"),
    ({"kind": "deduplicate", "keys": ["nope"]}, "there is no column nope; there are id, user"),
    (
        {"kind": "state", "keys": ["id"], "processor": "json:loads", "schema": "x int"},
        "json:loads is no StatefulProcessor of Spark",
    ),
]


@pytest.mark.parametrize(("step", "said"), WRONG)
def test_what_only_spark_can_tell_is_told(
    spark: SparkSession, etl: PipelineScene, step: dict[str, Any], said: str
) -> None:
    source = {"topic": "x", "schema": f"{SCHEMA}, at timestamp", "event_time": "at"}
    pipeline = etl.pipeline(
        {"orders": source | {"watermark": "1s"}},
        [{"kind": "console", "input": "it"}],
        [{"name": "it", "input": "orders", **step}],
    )
    with pytest.raises(SpecError) as error:
        pipeline.validate(spark)
    assert said in str(error.value)
    assert str(error.value).startswith("pipeline: [[steps]] 'it'")
    assert "\n" not in str(error.value)


FAR = "+99999-01-01T00:00:00Z"


def test_values_that_python_does_not_have_fail_their_row_only(
    etl: PipelineScene, rules: str
) -> None:
    """Years after 9999, in a column, a struct or a list."""
    source, target = etl.declare(), etl.target()
    good = "2026-11-20T09:00:00Z"
    fields = ("at", "local", "day", "inner", "list")
    sound = {"at": good, "local": good[:-1], "day": good[:10]}
    sound |= {"inner": {"at": good}, "list": [good]}
    far = {"at": FAR, "local": FAR[:-1], "day": FAR[:12]}
    far |= {"inner": {"at": FAR}, "list": [good, FAR]}
    rows = [{"id": 0, **sound}, *({"id": n + 1, **sound, f: far[f]} for n, f in enumerate(fields))]
    etl.fill(source, [*rows, {"id": 100, **sound}])
    schema = "id bigint, at timestamp, local timestamp_ntz, day date"
    schema += ", inner struct<at: timestamp>, list array<timestamp>"
    steps = [
        {
            "name": "same",
            "kind": "python",
            "input": "orders",
            "function": f"{rules}:number",
            "schema": "id bigint",
        }
    ]
    sinks = [{"kind": "stream", "input": "same", "topic": target}]
    etl.run(etl.pipeline({"orders": {"topic": source, "schema": schema}}, sinks, steps))
    assert ordered(etl.rows(target)) == [{"id": 0}, {"id": 100}]
    letters = {json.loads(record.value)["id"]: record.headers for record in etl.letters(source)}
    assert sorted(letters) == [n + 1 for n in range(len(fields))]
    assert {each["x-etl-error-type"] for each in letters.values()} <= {
        "OverflowError",
        "ValueError",
    }
