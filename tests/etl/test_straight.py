"""Records one by one: filtered, selected, cast and checked; what fails is a dead letter, once."""

import json
from typing import Any

from tests.etl.faker_data import Shop, moment_of, text_of
from tests.etl.scene import PipelineScene, ordered

SCHEMA = "id bigint, user string, cents bigint"


def orders(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "user": f"u{n % 7}", "cents": n * 10} for n in range(count)]


def test_sound_records_are_results_and_others_dead_letters(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    etl.fill(source, orders(50), key="user")
    bad = [b"{", b"\xff", b"", b'{"id": "x", "user": "u1"}', b'{"user": "u1"}', b'{"id": -1}', None]
    etl.send(source, [(value, f"bad{place}") for place, value in enumerate(bad)])
    pipeline = etl.pipeline(
        {
            "orders": {
                "topic": source,
                "schema": SCHEMA,
                "required": ["id"],
                "check": {"positive": "id >= 0"},
            }
        },
        [{"kind": "stream", "input": "euros", "topic": target, "key": "user"}],
        [
            {"name": "some", "kind": "filter", "input": "orders", "where": "cents > 100"},
            {
                "name": "euros",
                "kind": "select",
                "input": "some",
                "columns": {"id": "id", "user": "upper(user)", "euros": "cents / 100"},
            },
        ],
    )
    etl.run(pipeline)
    expected = [
        {"id": row["id"], "user": row["user"].upper(), "euros": row["cents"] / 100}
        for row in orders(50)
        if row["cents"] > 100
    ]
    assert ordered(etl.rows(target)) == ordered(expected)
    assert {record.key for record in etl.records(target)} == {f"U{n}".encode() for n in range(7)}
    letters = {record.key: record for record in etl.letters(source)}
    assert len(etl.letters(source)) == len(bad)
    assert {key: record.value for key, record in letters.items()} == {
        f"bad{place}".encode(): value for place, value in enumerate(bad)
    }
    kinds = {key: record.headers["x-etl-error-type"] for key, record in letters.items()}
    assert kinds == {
        b"bad0": "DecodeError",
        b"bad1": "DecodeError",
        b"bad2": "DecodeError",
        b"bad3": "DecodeError",
        b"bad4": "ValidationError",
        b"bad5": "ValidationError",
        b"bad6": "DecodeError",
    }
    places = {
        (int(record.headers["x-etl-partition"]), int(record.headers["x-etl-offset"])): record.value
        for record in letters.values()
    }
    assert places == {
        (partition, record.offset): record.value
        for partition in range(2)
        for record in etl.client.reader(source, partition, 0)
        if record.key.startswith(b"bad")
    }
    batches = [event.batch for event in etl.events if event.batch is not None]
    assert sum(batch.records for batch in batches) == 57
    assert sum(batch.letters for batch in batches) == len(bad)


def test_filter_map_cast_and_checks_do_what_a_model_does(etl: PipelineScene) -> None:
    """On a shop's orders, of which some have a price that is none, and some no user."""
    source, target = etl.declare(), etl.target()
    rows: list[dict[str, Any]] = [row | {"cents": str(row["cents"])} for row in Shop().orders(400)]
    for row in rows[::11]:
        row["cents"] = f"{row['cents']} cents"
    for row in rows[::17]:
        row["user"] = None
    etl.fill(source, rows)
    steps = [
        {"name": "priced", "kind": "cast", "input": "orders", "types": {"cents": "bigint"}},
        {"name": "large", "kind": "filter", "input": "priced", "where": "cents >= 5000"},
        {
            "name": "more",
            "kind": "map",
            "input": "large",
            "columns": {"euros": "cents DIV 100", "hour": "date_trunc('HOUR', at)"},
        },
        {"name": "known", "kind": "validate", "input": "more", "required": ["user"]},
        {
            "name": "out",
            "kind": "select",
            "input": "known",
            "columns": {"id": "id", "who": "upper(user)", "euros": "euros", "hour": "hour"},
        },
    ]
    schema = "id bigint, user string, cents string, at timestamp"
    sinks = [{"kind": "stream", "input": "out", "topic": target, "key": "who"}]
    etl.run(etl.pipeline({"orders": {"topic": source, "schema": schema}}, sinks, steps))
    expected, errors = [], {}
    for row in rows:
        if not row["cents"].isdigit():
            shown = f"column cents is no bigint: {row['cents']}"
            errors[row["id"]] = ("CastError", shown)
        elif int(row["cents"]) >= 5000:
            if row["user"] is None:
                errors[row["id"]] = ("ValidationError", "column user is null")
                continue
            hour = moment_of(row["at"]).replace(minute=0, second=0)
            expected.append(
                {
                    "id": row["id"],
                    "who": row["user"].upper(),
                    "euros": int(row["cents"]) // 100,
                    "hour": text_of(hour),
                }
            )
    assert ordered(etl.rows(target)) == ordered(expected)
    letters = etl.letters(source)
    assert len(letters) == len(errors)
    assert len({kind for kind, _ in errors.values()}) == 2
    for record in letters:
        said = (record.headers["x-etl-error-type"], record.headers["x-etl-error"])
        assert said == errors[json.loads(record.value)["id"]]
