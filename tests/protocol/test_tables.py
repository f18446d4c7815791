"""Field tables against pamqp's, round trips, and bytes that are no table."""

import struct
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import decode, encode

from broker.protocol.tables import (
    NESTING_MAX,
    check_table,
    decode_table,
    encode_long,
    encode_table,
    encode_value,
    join_table,
    raw_text,
    split_table,
    text,
)
from tests.protocol.pamqp_frames import TABLE, TEXT, tables

ANY_TABLE = tables(floats=st.floats(allow_nan=False))


def raw_table(body):
    return struct.pack(">I", len(body)) + body


def entry(value, name=b"k"):
    return bytes((len(name),)) + name + value


def nested(opening, levels, innermost):
    value = innermost
    for _ in range(levels):
        body = entry(value) if opening == b"F" else value
        value = opening + raw_table(body)
    return raw_table(entry(value))


@settings(derandomize=True, deadline=None)
@given(TABLE)
def test_a_table_that_pamqp_wrote_is_read_to_the_same_values(table):
    data = encode.field_table(table)
    assert decode_table(data) == (table, len(data))


@settings(derandomize=True, deadline=None)
@given(ANY_TABLE)
def test_pamqp_reads_a_table_to_the_values_it_was_written_with(table):
    data = encode_table(table)
    assert decode.field_table(data) == (len(data), table)


@settings(derandomize=True, deadline=None)
@given(ANY_TABLE, st.binary(max_size=5), st.binary(max_size=5))
def test_what_is_written_is_read_back_wherever_it_stands(table, before, behind):
    data = encode_table(table)
    assert decode_table(before + data + behind, len(before)) == (table, len(before) + len(data))


@settings(derandomize=True, deadline=None)
@given(TABLE, st.binary(max_size=5))
def test_splitting_and_joining_keeps_every_byte(table, before):
    for data in (encode.field_table(table), encode_table(table)):
        entries, end = split_table(before + data, len(before))
        assert end == len(before) + len(data)
        assert join_table(entries) == data
        assert {text(name) for name in entries} == set(table)


# Each field type as a client may send it: raw value, what it is read to, how it is written again.
FIELDS = {
    "bool": (b"t\x01", True, None),
    "int8": (b"b\xff", -1, b"I\xff\xff\xff\xff"),
    "uint8": (b"B\xff", 255, b"I\x00\x00\x00\xff"),
    "int16": (b"s\xff\xfe", -2, b"I\xff\xff\xff\xfe"),
    "uint16": (b"u\xff\xfe", 65534, b"I\x00\x00\xff\xfe"),
    "int32": (b"I\x80\x00\x00\x00", -(2**31), None),
    "uint32": (b"i\xff\xff\xff\xff", 2**32 - 1, b"l\x00\x00\x00\x00\xff\xff\xff\xff"),
    "int64": (b"l\x80" + bytes(7), -(2**63), None),
    "float": (b"f" + struct.pack(">f", 0.5), 0.5, b"d" + struct.pack(">d", 0.5)),
    "double": (b"d" + struct.pack(">d", 0.1), 0.1, None),
    "decimal": (b"D\x02\x00\x00\x30\x39", Decimal("123.45"), None),
    "negative decimal": (b"D\x01\xff\xff\xff\xff", Decimal("-0.1"), None),
    "string": (b"S\x00\x00\x00\x02\xc3\xbc", "ü", None),
    "string that is not UTF-8": (b"S\x00\x00\x00\x01\xff", b"\xff", None),
    "binary": (b"x\x00\x00\x00\x02ab", bytearray(b"ab"), None),
    "timestamp": (b"T" + struct.pack(">Q", 86400), datetime(1970, 1, 2, tzinfo=UTC), None),
    "timestamp beyond all calendars": (b"T" + struct.pack(">Q", 2**62), 2**62, b"l\x40" + bytes(7)),
    "void": (b"V", None, None),
    "array": (b"A\x00\x00\x00\x03t\x00V", [False, None], None),
    "table": (b"F\x00\x00\x00\x03\x01kV", {"k": None}, None),
}


@pytest.mark.parametrize("name", FIELDS)
def test_each_type_of_field_is_read_and_written(name):
    raw, value, written = FIELDS[name]
    read = decode_table(raw_table(entry(raw)))[0]["k"]
    assert (type(read), read) == (type(value), value)
    assert encode_value(read) == (written or raw)


def test_an_unsigned_64_bit_number_is_read_as_such():
    assert decode_table(raw_table(entry(b"L" + b"\xff" * 8)))[0]["k"] == 2**64 - 1


def test_a_counter_is_written_with_64_bits():
    assert encode_long(-1) == b"l" + b"\xff" * 8


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=20))
def test_names_that_are_not_utf8_survive(raw):
    assert raw_text(text(raw)) == raw
    assert encode_table(decode_table(raw_table(entry(b"V", raw)))[0]) == raw_table(entry(b"V", raw))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object(), {"k" * 256: 1}])
def test_what_no_field_can_hold_is_refused(value):
    with pytest.raises(ValueError, match=r"\S"):
        encode_value(value)


# Bytes that are no table


def check_whole(data, pos=0):
    """`check_table` with the end that the table itself announces, as content headers have it."""
    if len(data) < 4:
        raise ValueError("no length")  # nothing that could be announced in a content header
    end = pos + 4 + int.from_bytes(data[pos : pos + 4], "big")
    check_table(data, pos, end)
    return None, end


MALFORMED = {
    "no length": b"\x00\x00",
    "longer than the data": b"\x00\x00\x00\x09\x01kV",
    "a name beyond the table": raw_table(b"\x09kV"),
    "a name and no value": raw_table(b"\x01k"),
    "an unknown type": raw_table(entry(b"?\x00")),
    "a number cut short": raw_table(entry(b"I\x00\x00")),
    "a string cut short": raw_table(entry(b"S\x00\x00\x00\x05abc")),
    "a string of four gigabytes": raw_table(entry(b"S\xff\xff\xff\xffabc")),
    "an array of four gigabytes": raw_table(entry(b"A\xff\xff\xff\xffV")),
    "a table of four gigabytes": b"\xff\xff\xff\xff" + entry(b"V"),
    "an unknown type in an array": raw_table(entry(b"A\x00\x00\x00\x01?")),
    "a value across the end of its array": raw_table(entry(b"A\x00\x00\x00\x01I") + bytes(4)),
    "a value across the end of its table": raw_table(entry(b"F" + raw_table(b"\x01kI")) + bytes(4)),
    "a boolean without an octet": raw_table(entry(b"t")),
    "a decimal cut short": raw_table(entry(b"D\x02\x00")),
    "a timestamp cut short": raw_table(entry(b"T\x02\x00")),
    "a table nested too deep": nested(b"F", NESTING_MAX, b"V"),
    "an array nested too deep": nested(b"A", NESTING_MAX, b"V"),
    "a table nested five thousand deep": nested(b"F", 5000, b"V"),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("read", [decode_table, split_table, check_whole])
def test_malformed_bytes_are_a_value_error(read, name):
    with pytest.raises(ValueError, match=r"\S"):
        read(MALFORMED[name])


@pytest.mark.parametrize("opening", [b"F", b"A"])
def test_nesting_up_to_the_limit_is_fine(opening):
    data = nested(opening, NESTING_MAX - 1, b"V")
    assert encode_table(decode_table(data)[0]) == data
    assert join_table(split_table(data)[0]) == data
    check_table(data, 0, len(data))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    TABLE,
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
    st.integers(0, 500),
)
def test_damaged_tables_raise_nothing_but_value_errors_and_all_readers_agree(table, damage, length):
    data = bytearray(encode.field_table(table))
    for at, value in damage:
        data[at % len(data)] = value
    data = bytes(data[: max(length, 4)])
    assert outcome(decode_table, data) == outcome(split_table, data) == outcome(check_whole, data)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=30).map(raw_table))
def test_random_bytes_raise_nothing_but_value_errors_and_all_readers_agree(data):
    assert outcome(decode_table, data) == outcome(split_table, data) == outcome(check_whole, data)


def outcome(read, data):
    """Where the table ends, or None if the bytes were refused."""
    try:
        return read(data)[1]
    except ValueError:
        return None


def test_names_may_be_as_long_as_their_length_octet_says():
    table = {"k" * 255: 1}
    assert decode_table(encode_table(table))[0] == table


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(TEXT, st.integers(0, 9)), max_size=5))
def test_of_a_name_that_comes_twice_both_readers_take_the_last_value(entries):
    data = raw_table(
        b"".join(entry(b"B" + bytes((value,)), raw_text(name)) for name, value in entries)
    )
    assert decode_table(data)[0] == dict(entries)
    assert split_table(data)[0] == {
        raw_text(name): b"B" + bytes((value,)) for name, value in dict(entries).items()
    }
