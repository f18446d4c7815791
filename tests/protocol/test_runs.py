"""Runs of publishes that are all alike come out as the same publishes one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from broker.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from broker.protocol.frames import FrameReader
from broker.protocol.runs import RUN_MIN, ContentRun
from tests.protocol.pamqp_frames import CHUNK_SIZES, cut, method_frame, publish_frames, read_all


def new_reader(message_bytes_max=1 << 24):
    return FrameReader(frame_max=131072, message_bytes_max=message_bytes_max)


def publishes(count, *, channel=1, size=3, **values):
    """Each with another body, as bytes on the wire."""
    payloads = [str(number).rjust(size, "0").encode()[-size:] for number in range(count)]
    return [b"".join(publish_frames(channel, payload, **values)) for payload in payloads]


def one_by_one(data):
    """What a reader makes of publishes that come one at a time, in no run."""
    reader = new_reader()
    return read_all(reader, data), reader.failure


KINDS = st.fixed_dictionaries(
    {
        "channel": st.integers(1, 2),
        "size": st.sampled_from([1, 3, 200]),
        "exchange": st.sampled_from(["", "x"]),
        "properties": st.sampled_from(
            [None, commands.Basic.Properties(delivery_mode=2, headers={"k": "v"})]
        ),
    }
)
SEVERAL = st.lists(st.tuples(st.integers(1, 3 * RUN_MIN), KINDS), min_size=1, max_size=5)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(SEVERAL, CHUNK_SIZES)
def test_publishes_come_out_alike_in_runs_or_not_however_they_are_cut(several, sizes):
    each = [one for count, kind in several for one in publishes(count, **kind)]
    expected, _ = one_by_one(each)
    data = b"".join(each)
    for pieces in ([data], cut(data, sizes)):
        reader = new_reader()
        assert read_all(reader, pieces) == expected
        assert reader.failure is None


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damage_within_a_run_is_found_at_the_same_place(at, value):
    each = publishes(2 * RUN_MIN)
    data = bytearray(b"".join(each))
    data[at % len(data)] = value
    whole, pieces = new_reader(), new_reader()
    found = read_all(whole, [bytes(data)])
    assert found == read_all(pieces, cut(bytes(data), [len(each[0]) // 2]))
    if whole.failure is None:
        assert pieces.failure is None
    else:
        assert pieces.failure is not None
        assert whole.failure.text == pieces.failure.text


def test_a_run_is_a_batch_of_its_own_and_ends_with_the_first_that_differs():
    ack = method_frame(1, commands.Basic.Ack, delivery_tag=1)
    run, other = publishes(RUN_MIN), publishes(2, size=4)
    batches = new_reader().feed(b"".join([ack, *run, *other, ack]))
    assert [(key, len(items), isinstance(items, ContentRun)) for _, key, items in batches] == [
        (BASIC_ACK, 1, False),
        (BASIC_PUBLISH, RUN_MIN, True),
        (BASIC_PUBLISH, 2, False),
        (BASIC_ACK, 1, False),
    ]


def test_a_run_of_what_is_too_large_is_none():
    batches = new_reader(message_bytes_max=2).feed(b"".join(publishes(RUN_MIN)))
    assert [items for _, _, items in batches] == [[3]] * RUN_MIN


@pytest.mark.parametrize("channel", [1, 7])
def test_a_run_is_a_sequence_of_its_publishes(channel):
    properties = commands.Basic.Properties(content_type="text/plain", delivery_mode=2)
    each = publishes(10, channel=channel, properties=properties, routing_key="q")
    expected = [item for _, _, item in one_by_one(each)[0]]
    ((number, _, run),) = new_reader().feed(b"".join(each))
    assert isinstance(run, ContentRun)
    assert (number, run.channel, len(run)) == (channel, channel, 10)
    assert list(run) == expected
    assert [run[0], run[9], run[-1]] == [expected[0], expected[9], expected[9]]
    assert list(run[3:5]) == expected[3:5]
    with pytest.raises(IndexError):
        run[10]
    assert run.bodies() == [b"%03d" % count for count in range(10)]
    assert all(frames[19 : 7 + run.header_bytes] == run.properties for _, frames, *_ in expected)
    assert run.size_bytes == sum(map(len, each))
