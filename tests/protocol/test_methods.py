"""Every method is read and written as pamqp reads and writes it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from broker.protocol import methods
from broker.protocol.constants import BASIC_PUBLISH
from broker.protocol.errors import ConnectionFailure
from broker.routes import parse_publish
from tests.protocol.pamqp_frames import COMMON_TABLE, METHOD_KINDS, NAME, TABLE, arguments

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")


def in_order(value):
    """With names in order, as pamqp writes them."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def values_of(method):
    """Arguments by name, long strings as bytes."""
    return {
        name: value.encode()
        if method.amqp_type(name) == "longstr" and value == str(value)
        else value
        for name, value in method
    }


@pytest.mark.parametrize("kind", METHOD_KINDS, ids=lambda kind: kind.name)
def test_a_method_that_pamqp_wrote_is_read_to_the_same_values(kind):
    @settings(derandomize=True, deadline=None, max_examples=10, database=None)
    @given(arguments(kind, TABLE))
    def check(values):
        written = kind(**values)
        read = methods.decode(kind.index, written.marshal())
        assert type(read) is kind
        assert values_of(read) == values_of(written)

    check()


@pytest.mark.parametrize("kind", METHOD_KINDS, ids=lambda kind: kind.name)
def test_a_method_is_written_byte_for_byte_as_pamqp_writes_it(kind):
    @settings(derandomize=True, deadline=None, max_examples=10, database=None)
    @given(arguments(kind, COMMON_TABLE), st.integers(0, 65535))
    def check(values, channel):
        written = methods.encode(channel, kind, **in_order(values))
        assert written == frame.marshal(kind(**values), channel)

    check()


@pytest.mark.parametrize("kind", METHOD_KINDS, ids=lambda kind: kind.name)
def test_pamqp_reads_a_method_to_the_values_it_was_written_with(kind):
    @settings(derandomize=True, deadline=None, max_examples=10, database=None)
    @given(arguments(kind, TABLE))
    def check(values):
        consumed, channel, read = frame.unmarshal(data := methods.encode(7, kind, **values))
        assert (consumed, channel, type(read)) == (len(data), 7, kind)
        assert values_of(read) == values_of(kind(**values))

    check()


@pytest.mark.parametrize("kind", METHOD_KINDS, ids=lambda kind: kind.name)
def test_arguments_that_are_not_given_are_written_as_zero_empty_or_false(kind):
    read = methods.decode(kind.index, methods.encode(0, kind)[11:-1])
    assert not any(value for _, value in read)


@pytest.mark.parametrize("kind", METHOD_KINDS, ids=lambda kind: kind.name)
def test_arguments_cut_short_or_followed_by_more_are_a_frame_error(kind):
    whole = methods.encode(0, kind)[11:-1]
    for args in [whole[:length] for length in range(len(whole))] + [whole + b"\x00"]:
        with pytest.raises(ConnectionFailure) as failure:
            methods.decode(kind.index, args)
        assert (failure.value.code, failure.value.method) == (501, kind.index)


def test_a_method_that_nobody_knows_is_not_implemented():
    with pytest.raises(ConnectionFailure) as failure:
        methods.decode(0x003C00FF, b"")
    assert failure.value.code == 540
    assert methods.name_of(0x003C00FF) == "60.255"
    assert methods.name_of(BASIC_PUBLISH) == "Basic.Publish"


def test_an_argument_that_a_method_does_not_have_is_a_bug_of_ours():
    with pytest.raises(AssertionError):
        methods.encode(0, commands.Basic.Ack, no_such=1)


@pytest.mark.parametrize("name", ["my queue!", "ünïcode", "a" * 255, "日本"])
def test_names_that_pamqp_refuses_are_fine(name):
    read = methods.decode(
        commands.Queue.Declare.index, methods.encode(1, commands.Queue.Declare, queue=name)[11:-1]
    )
    assert read.queue == name


def test_a_name_that_is_not_utf8_is_a_frame_error():
    args = methods.encode(1, commands.Queue.Declare, queue=b"\xff\xfe")[11:-1]
    with pytest.raises(ConnectionFailure) as failure:
        methods.decode(commands.Queue.Declare.index, args)
    assert failure.value.code == 501


# basic.publish has a reader of its own


@settings(derandomize=True, deadline=None)
@given(NAME, NAME, st.booleans(), st.booleans())
def test_a_publish_that_pamqp_wrote_is_parsed_to_the_same_values(
    exchange, key, mandatory, immediate
):
    publish = commands.Basic.Publish(
        exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate
    )
    name, routing_key, address, flags = parse_publish(publish.marshal())
    assert (name, routing_key) == (exchange, key)
    assert address == methods.short_string(exchange) + methods.short_string(key)
    assert flags == mandatory | immediate << 1


def test_a_publish_cut_short_or_followed_by_more_is_a_frame_error():
    whole = commands.Basic.Publish(exchange="an exchange", routing_key="a key").marshal()
    for args in [whole[:length] for length in range(len(whole))] + [whole + b"\x00"]:
        with pytest.raises(ConnectionFailure) as failure:
            parse_publish(args)
        assert (failure.value.code, failure.value.method) == (501, BASIC_PUBLISH)
