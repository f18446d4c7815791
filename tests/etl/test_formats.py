"""What is a record and what is not: JSON and CSV, value by value."""

from typing import Any

import pytest

from tests.etl.scene import PipelineScene, ordered

SCHEMA = "id bigint, user string, list array<int>"
MISFIT = "not JSON of this schema; without a value: "
ALL = "id, user, list"
MORE = "there is more behind the JSON object"
ARRAY = "a JSON array, where one object is expected"
EMPTY = "the value is empty"
Expected = dict[str, Any] | str  # a row, or why there is none

JSON: list[tuple[bytes, Expected]] = [
    (b'{"id":1,"user":"a","list":[1,2]}', {"id": 1, "user": "a", "list": [1, 2]}),
    (b' \t{"id":2}\r\n', {"id": 2}),
    (b"{}", {}),
    (b'{"id":3,"other":{"x":[]}}', {"id": 3}),
    (b'{"id":4,"user":{"x":1}}', {"id": 4, "user": '{"x":1}'}),
    (b'{"id":5,"id":6}', {"id": 6}),
    (b'{"id":7} trailing garbage', MORE),
    (b'{"id":8}{"id":9}', MORE),
    (b'{"id":8}\n{"id":9}\n', MORE),
    (b'{"id":10},{"id":11}', MORE),
    (b'{"id":12},', MORE),
    (b'{"id":13},null', MORE),
    (b'{"id":14}]', MORE),
    (b'{"id":15}}', MORE),
    (b'{"id":16},{"id":17}]} x', MORE),
    (b'{"id":18}\0', MORE),
    (b'{"id":19} // no comments', MORE),
    (b"{'id':20}", MISFIT + ALL),
    (b'{"id":21', MISFIT + ALL),
    (b'{"id":22,}', MISFIT + ALL),
    (b"{id:23}", MISFIT + ALL),
    (b'{"id":"x","user":"b"}', MISFIT + "id, list"),
    (b'{"id":24,"list":["x"]}', MISFIT + "user, list"),
    (b'{"id":99999999999999999999}', MISFIT + ALL),
    (b'[{"id":25},{"id":26}]', ARRAY),
    (b'[{"id":27}]', ARRAY),
    (b"[]", ARRAY),
    (b"28", MISFIT + ALL),
    (b'"text"', MISFIT + ALL),
    (b"true", MISFIT + ALL),
    (b"null", "JSON's null, where an object is expected"),
    (b"", EMPTY),
    (b" \n", EMPTY),
    (b'\xef\xbb\xbf{"id":29}', "not JSON: it begins with a byte order mark"),
    (b'{"user":"\xff"}', "the value is not UTF-8"),
]
LENIENT: list[tuple[bytes, Expected]] = [
    (b"{'id':1}", {"id": 1}),
    (b'{"id":2} // a comment', {"id": 2}),
    (b'{"id":3} // a comment\n{"id":4}', MORE),
]
CSV: list[tuple[bytes, Expected]] = [
    (b"1,a", {"id": 1, "user": "a"}),
    (b'2,"a\nb"', {"id": 2, "user": "a\nb"}),
    (b",", {}),
    (b"", EMPTY),
    (b"3", "not CSV of this schema; without a value: user"),
    (b"4,a,b", "not CSV of this schema; without a value: "),
    (b"5,a\n6,b", "not CSV of this schema; without a value: "),
    (b"x,a", "not CSV of this schema; without a value: id"),
]
CASES: list[tuple[dict[str, Any], list[tuple[bytes, Expected]]]] = [
    ({"schema": SCHEMA}, JSON),
    (
        {"schema": SCHEMA, "options": {"AllowSingleQuotes": "true", "allowComments": "true"}},
        LENIENT,
    ),
    ({"schema": "id bigint, user string", "format": "csv"}, CSV),
]


@pytest.mark.parametrize(("source", "cases"), CASES, ids=["json", "lenient json", "csv"])
def test_a_value_is_one_row_or_a_letter_that_says_why(
    etl: PipelineScene, source: dict[str, Any], cases: list[tuple[bytes, Expected]]
) -> None:
    """Nothing else: no value loses a part of itself."""
    topic, target = etl.declare(), etl.target()
    etl.send(topic, [(value, None) for value, _ in cases])
    sinks = [{"kind": "stream", "input": "orders", "topic": target}]
    etl.run(etl.pipeline({"orders": {"topic": topic, **source}}, sinks))
    rows = [{k: v for k, v in row.items() if v is not None} for row in etl.rows(target)]
    assert ordered(rows) == ordered(row for _, row in cases if isinstance(row, dict))
    letters = [(record.value, record.headers["x-etl-error"]) for record in etl.letters(topic)]
    assert sorted(letters) == sorted(
        (value, reason) for value, reason in cases if isinstance(reason, str)
    )
    kinds = {record.headers["x-etl-error-type"] for record in etl.letters(topic)}
    assert kinds == {"DecodeError"}
