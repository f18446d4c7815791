"""Streaming queries: every record once, at the pace they were told, also after a restart."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from clients.streams import connect
from tests.spark.streams import WITHIN_S, Batches, Streams
from tests.support.waiting import eventually


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


def wait_for(sink: Batches, expected: list[bytes]) -> None:
    eventually(lambda: len(sink.all()) >= len(expected), "all records", within_s=WITHIN_S)
    assert sink.values() == expected


def test_a_query_reads_what_is_available_now_at_its_pace(streams: Streams, tmp_path: Path) -> None:
    name = streams.declare(partitions=2)
    streams.fill(name, values(30), 0)
    streams.fill(name, values(10, 30), 1)
    sink = Batches()
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 16}
    streams.run(tmp_path, sink, **options)
    assert sink.values() == values(40)
    assert sink.sizes() == [16, 16, 8]


def test_a_query_goes_on_from_its_checkpoint_with_other_options(
    streams: Streams, tmp_path: Path
) -> None:
    name = streams.declare(partitions=2)
    sink = Batches()
    streams.fill(name, values(10))
    streams.run(tmp_path, sink, subscribe=name, startingOffsets="earliest")
    streams.fill(name, values(10, 10))
    streams.run(tmp_path, sink, subscribePattern=name, maxOffsetsPerTrigger=4, minPartitions=4)
    streams.run(tmp_path, sink, subscribe=name, maxBytesPerTrigger=1_000_000)
    assert sink.values() == values(20)
    assert sink.sizes() == [10, 4, 4, 2]


def test_a_query_that_failed_in_its_first_batch_reads_from_where_it_first_began(
    streams: Streams, tmp_path: Path
) -> None:
    name = streams.declare()
    streams.fill(name, values(5))  # from before the query, which starts at the latest offset
    options = {"subscribe": name, "consumerGroup": f"group of {name}"}

    def fail(number: int) -> None:
        raise RuntimeError("as a crash would")

    failing = streams.start(streams.follow(**options), tmp_path, Batches(fail))
    group = options["consumerGroup"]
    eventually(lambda: streams.client.committed(group), "the start", within_s=WITHIN_S)
    streams.fill(name, values(5, 5))
    with pytest.raises(StreamingQueryException, match="as a crash would"):
        failing.awaitTermination()
    streams.fill(name, values(5, 10))
    sink = Batches()
    streams.run(tmp_path, sink, **options)
    assert sink.values() == values(10, 5)


def test_progress_and_lag_are_seen_while_a_query_runs(streams: Streams, tmp_path: Path) -> None:
    name = streams.declare()
    group = f"group of {name}"
    options = {"subscribe": name, "startingOffsets": "earliest", "consumerGroup": group}
    sink = Batches()
    streams.fill(name, values(10))
    query = streams.start(streams.follow(**options), tmp_path, sink)

    def offsets() -> list[tuple[int, int]]:
        with connect(streams.url) as client:
            told = client.describe_group(group).offsets
        return [(each.committed.offset, each.next_offset) for each in told]

    wait_for(sink, values(10))
    eventually(lambda: offsets() == [(10, 10)], "progress", within_s=WITHIN_S)
    streams.fill(name, values(5, 10))
    wait_for(sink, values(15))
    eventually(lambda: offsets() == [(15, 15)], "progress", within_s=WITHIN_S)
    source = json.loads(query.lastProgress.json)["sources"][0]
    assert source["latestOffset"][name]["0"] == 15


def test_streams_that_come_to_match_a_pattern_are_read(streams: Streams, tmp_path: Path) -> None:
    name = streams.declare()
    sink = Batches()
    streams.fill(name, values(1))
    frame = streams.follow(subscribePattern=f"{name}.*", startingOffsets="earliest")
    query = streams.start(frame, tmp_path, sink)
    wait_for(sink, values(1))
    other = streams.declare_as(f"{name}-new", partitions=2)
    streams.fill(other, values(3, 1), 1)
    wait_for(sink, values(4))
    query.stop()
    streams.delete(other)


def test_headers_and_a_schema_of_ones_own_in_a_query(streams: Streams, tmp_path: Path) -> None:
    name = streams.declare()
    with streams.client.producer(name) as producer:
        producer.send(b"value", headers={"kind": "test"})
    frame = streams.follow(subscribe=name, startingOffsets="earliest", includeHeaders=True)
    sink = Batches()
    streams.start(frame, tmp_path, sink, availableNow=True).awaitTermination()
    (row,) = sink.all()
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("kind", b"test")]


def retention_overtakes(streams: Streams, tmp_path: Path, options: dict[str, Any]) -> None:
    """A query has read the first records, and the ones behind are gone before it goes on."""
    streams.fill(options["subscribe"], values(5))
    streams.run(tmp_path, Batches(), **options)
    for _ in range(8):
        streams.append(options["subscribe"], [bytes(100_000)] * 20, at_ms=0)
    client, name = streams.client, options["subscribe"]
    eventually(lambda: client.offsets(name, "first")[0] > 10, "retention", within_s=WITHIN_S)


@pytest.mark.parametrize("fail", [True, False])
def test_a_query_that_retention_overtook_fails_or_skips_as_it_was_told(
    streams: Streams, tmp_path: Path, *, fail: bool
) -> None:
    name = streams.declare(max_length_bytes=4_000_000, stream_max_segment_size_bytes=500_000)
    options = {"subscribe": name, "startingOffsets": "earliest", "failOnDataLoss": fail}
    retention_overtakes(streams, tmp_path, options)
    sink = Batches()
    if fail:
        with pytest.raises(StreamingQueryException, match="were deleted by retention"):
            streams.run(tmp_path, sink, **options)
    else:
        streams.run(tmp_path, sink, **options)
        assert sink.all()[0].offset > 10
        assert max(row.offset for row in sink.all()) == 5 + 8 * 20 - 1
