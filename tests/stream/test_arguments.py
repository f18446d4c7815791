"""What a declare and a consume may ask of a stream."""

from datetime import UTC, datetime

import pytest

from queues.arguments import InvalidArgumentError
from queues.declared import parse_arguments
from queues.stream.arguments import StreamQueueOptions, parse_stream_options
from queues.stream.options import StreamOptions
from queues.stream.wishes import At, Edge, Since, start_of

MIB = 1024 * 1024
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10s", 10_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        ("7D", 7 * DAY_MS),
        ("1M", 30 * DAY_MS),
        ("1Y", 365 * DAY_MS),
        ("0s", 0),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_stream_options({"x-max-age": text}).storage.max_age_ms == ms
    assert start_of(text, 10**12) == Since(10**12 - ms)


@pytest.mark.parametrize("text", ["", "7", "D", "7d", "7 D", "-7D", "7.5h", "7D ", "٣D", "1" * 13])
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="x-max-age"):
        parse_stream_options({"x-max-age": text})


def test_a_stream_without_arguments_keeps_everything_in_one_partition() -> None:
    assert parse_stream_options({}) == StreamQueueOptions(partitions=1, storage=StreamOptions())


@pytest.mark.parametrize(("acks", "of_the_leader"), [("1", True), ("all", False)])
def test_who_has_to_have_a_record_before_it_is_confirmed(acks: str, of_the_leader: bool) -> None:
    assert parse_stream_options({"x-acks": acks}).storage.leader_acks == of_the_leader


@pytest.mark.parametrize("acks", ["", "0", "2", 1, True, None])
def test_anything_else_does_not_say_who(acks: object) -> None:
    with pytest.raises(InvalidArgumentError, match="x-acks"):
        parse_stream_options({"x-acks": acks})


def test_the_size_of_a_stream_is_shared_by_its_partitions() -> None:
    given = {"x-max-length-bytes": 1001, "x-partitions": 10}
    assert parse_stream_options(given).storage.max_bytes == 101


@pytest.mark.parametrize(
    ("max_bytes", "segment_bytes"), [(10, MIB), (100 * MIB, 25 * MIB), (2**40, 128 * MIB)]
)
def test_segments_are_small_beside_what_is_kept(max_bytes: int, segment_bytes: int) -> None:
    options = parse_stream_options({"x-max-length-bytes": max_bytes})
    assert options.storage.segment_bytes == segment_bytes


def test_a_size_of_segments_that_is_given_counts() -> None:
    given = {"x-max-length-bytes": 10, "x-stream-max-segment-size-bytes": 5000}
    assert parse_stream_options(given).storage.segment_bytes == 5000


def test_the_type_decides_who_reads_the_arguments() -> None:
    stream = parse_arguments({"x-queue-type": "stream", "x-compact": True}, default="quorum")
    assert stream.type == "stream"
    for other in ("classic", "quorum"):
        assert parse_arguments({}, default=other).type == other
        with pytest.raises(InvalidArgumentError, match="x-compact"):
            parse_arguments({"x-queue-type": other, "x-compact": True}, default="stream")
    with pytest.raises(InvalidArgumentError, match="one of classic, quorum, stream"):
        parse_arguments({"x-queue-type": "fifo"}, default="quorum")


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("first", Edge.FIRST),
        ("last", Edge.LAST),
        ("next", Edge.NEXT),
        (0, At(0)),
        (2**62, At(2**62)),
        (datetime(1970, 1, 2, tzinfo=UTC), Since(DAY_MS)),
    ],
)
def test_a_beginning_is_a_word_a_number_or_a_time(value: object, start: object) -> None:
    assert start_of(value, 10**12) == start
