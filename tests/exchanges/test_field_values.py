"""Field values in canonical form: equal only if type and value are."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from exchanges.values import canonical, canonical_table

NEW_YEAR = datetime(2020, 1, 1, tzinfo=UTC)

# Look-alikes: no two of them are the same value.
DIFFERENT = [
    None,
    "",
    "1",
    b"1",
    True,
    False,
    0,
    1,
    0.0,
    -0.0,
    1.0,
    float("nan"),
    Decimal(1),
    Decimal("1.0"),
    NEW_YEAR,
    1577836800,
    [],
    [1],
    [True],
    [[1]],
    {},
    {"a": 1},
    {"a": True},
    {"a": None},
    {"a": [1]},
    {"array": 1},
    ["array", 1],
]


def test_values_that_differ_in_type_or_content_have_different_forms():
    assert len({canonical(value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")),
        (b"x", bytearray(b"x")),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
    ],
)
def test_equal_values_have_equal_forms(one, other):
    assert canonical(one) == canonical(other)
    assert hash(canonical(one)) == hash(canonical(other))


def test_the_order_in_a_table_does_not_show_in_its_form():
    forms = [canonical_table({"b": 1, "a": [2]}), canonical_table({"a": [2], "b": 1})]
    assert repr(forms[0]) == repr(forms[1])


def test_what_no_amqp_table_can_hold_is_refused():
    with pytest.raises(TypeError, match="not an AMQP field value"):
        canonical(object())
