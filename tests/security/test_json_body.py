"""JSON bodies: what is parsed, and what is refused unparsed because it would take too long."""

import json

import pytest

from broker.http.json_body import VALUES_MAX, parse


@pytest.mark.parametrize(
    "value", [{}, [], 1, "x", {"a": [1, 2, {"b": None}]}, "," * VALUES_MAX, ['"[{\\,' * 60_000]]
)
def test_long_texts_are_no_reason_to_refuse(value):
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * VALUES_MAX + b"[]]",
        b"[" + b"1," * VALUES_MAX + b"1]",
        b'{"a":' + b"{}," * VALUES_MAX + b"1}",
        b"[" * 100_000,
        b"{",
        b"\xff",
        b'"' + b"\\" * 100_000,
    ],
)
def test_too_many_values_and_what_is_no_json_are_refused(body):
    with pytest.raises(ValueError, match=r".+"):
        parse(body)
