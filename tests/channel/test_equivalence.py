"""Re-declaring: what counts as the same, and RabbitMQ's words where it is not."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.equivalence import check_arguments, check_property
from broker.protocol.errors import ChannelError

THING = "queue 'q' in vhost '/'"


def refusal(check, *args, **kwargs):
    with pytest.raises(ChannelError) as error:
        check(*args, **kwargs)
    assert error.value.code == 406
    return error.value.reply_text


@pytest.mark.parametrize("value", [True, False, "direct"])
def test_equal_properties_pass(value):
    check_property("durable", THING, received=value, current=value)


@pytest.mark.parametrize(
    ("received", "current", "words"),
    [
        (False, True, "received 'false' but current is 'true'"),
        (True, False, "received 'true' but current is 'false'"),
        ("fanout", "direct", "received 'fanout' but current is 'direct'"),
    ],
)
def test_a_property_that_differs_is_named_with_both_values(received, current, words):
    text = refusal(check_property, "durable", THING, received=received, current=current)
    assert text == f"PRECONDITION_FAILED - inequivalent arg 'durable' for {THING}: {words}"


@pytest.mark.parametrize(
    ("received", "current"),
    [
        ({}, {}),
        ({"x-max-length": 5}, {"x-max-length": 5}),
        ({"x-max-length": 5, "x-other": 1}, {"x-max-length": 5, "x-other": 2}),
        ({"x-other": 1}, {}),
    ],
)
def test_arguments_that_do_not_matter_may_differ(received, current):
    check_arguments(("x-max-length", "x-overflow"), THING, received=received, current=current)


@pytest.mark.parametrize(
    ("received", "current", "words"),
    [
        (5, 6, "received '5' but current is '6'"),
        ("a", "b", "received 'a' but current is 'b'"),
        (True, 1, "received 'true' but current is '1'"),
        (5, None, "received the value '5' of type 'signedint' but current is none"),
        (None, 5, "received none but current is the value '5' of type 'signedint'"),
        (2**40, None, f"received the value '{2**40}' of type 'long' but current is none"),
        ("a", None, "received the value 'a' of type 'longstr' but current is none"),
        (True, None, "received the value 'true' of type 'bool' but current is none"),
        (0.5, None, "received the value '0.5' of type 'double' but current is none"),
        (Decimal("0.5"), None, "received the value '0.5' of type 'decimal' but current is none"),
    ],
)
def test_an_argument_that_differs_is_named_with_what_it_is(received, current, words):
    sides = {
        side: {} if value is None else {"x-arg": value}
        for side, value in (("received", received), ("current", current))
    }
    text = refusal(check_arguments, ("x-arg",), THING, **sides)
    assert text == f"PRECONDITION_FAILED - inequivalent arg 'x-arg' for {THING}: {words}"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"k": 1}, "table"),
        ([1], "array"),
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
        (bytearray(b"x"), "binary"),
        (b"\xff", "longstr"),
    ],
)
def test_every_type_of_field_has_its_name(value, kind):
    text = refusal(check_arguments, ("x",), THING, received={"x": value}, current={})
    assert f"of type '{kind}'" in text


def test_a_long_text_is_cut_to_what_a_close_can_carry():
    text = refusal(check_property, "type", THING, received="ü" * 300, current="direct")
    assert len(text.encode()) <= 255
    assert text.startswith("PRECONDITION_FAILED - inequivalent arg 'type'")
