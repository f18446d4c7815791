"""Rows of a DataFrame in a stream: where, once, all or none."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from clients.streams import StreamClient, connect
from spark.errors import WriteError
from spark.sink import batch_writer
from tests.spark.writing import (
    batch,
    count,
    fill,
    forget_commit,
    numbers,
    records,
    run_copy,
    values,
    write,
)
from tests.support.scene import Scene
from tests.support.streams import bodies, declare_stream, read
from tests.support.wire import WireChannel

Declare = Callable[..., str]


@pytest.fixture
def client(amqp_url: str) -> Iterator[StreamClient]:
    with connect(amqp_url) as client:
        yield client


@pytest.fixture
def declare(scene: Scene, channel: WireChannel) -> Declare:
    return lambda partitions=3: declare_stream(scene, channel, partitions=partitions)


# Rows and records


def test_every_row_is_a_record_in_the_partition_of_its_key(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream = declare()
    write(numbers(spark, 1000), amqp_url, topic=stream)
    found = records(client, stream)
    assert sorted(int(record.value) for _, record in found) == list(range(1000))
    for partition, record in found:
        assert partition == crc32(record.key) % 3
        assert record.key == record.value
        assert record.properties == b""


def test_columns_say_topic_partition_and_headers_and_others_are_left_out(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    first, second = declare(), declare()
    rows = [
        (first, 2, b"k", "one", [("a", b"\xff"), ("b", None)], 9.5),
        (second, 0, None, None, [], 9.5),
        (second, None, b"k", "", None, 9.5),
    ]
    schema = (
        "topic string, partition int, key binary, value string, "
        "headers array<struct<key string, value binary>>, offset double"
    )
    write(spark.createDataFrame(rows, schema), amqp_url)
    [(partition, record)] = records(client, first)
    assert (partition, record.key, record.value) == (2, b"k", b"one")
    assert record.headers == {"a": b"\xff", "b": None}
    found = [(each, record.key, record.value) for each, record in records(client, second)]
    assert sorted(found) == sorted([(0, None, None), (crc32(b"k") % 3, b"k", b"")])


def test_amqp_consumers_get_what_spark_wrote(
    spark: SparkSession, amqp_url: str, channel: WireChannel, declare: Declare
) -> None:
    stream = declare(1)
    frame = spark.sql(
        "select 'body' value, "
        "array(struct('colour' as key, cast('red' as binary) as value)) headers"
    )
    write(frame, amqp_url, topic=stream)
    [got] = read(channel, stream, 1)
    assert bodies([got]) == [b"body"]
    assert got.headers["colour"] == "red"


def test_what_was_read_can_be_written_as_it_is(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    source, target = declare(), declare()
    fill(client, source, 100)
    frame = spark.read.format("leveret").options(url=amqp_url, subscribe=source).load()
    write(frame, amqp_url, topic=target)
    assert [(each, record.value) for each, record in records(client, target)] == [
        (each, record.value) for each, record in records(client, source)
    ]


def test_at_least_once_writes_at_once(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream = declare()
    write(numbers(spark, 1000), amqp_url, topic=stream, deliveryGuarantee="at_least_once")
    assert values(client, stream) == list(range(1000))
    writer = batch_writer(
        numbers(spark, 1).schema,
        {"url": amqp_url, "topic": stream, "deliveryGuarantee": "at_least_once"},
        overwrite=False,
    )
    writer.write(iter([batch(b"1000")]))
    assert values(client, stream) == list(range(1001))


# All or nothing


def test_a_job_that_fails_leaves_nothing_in_any_topic(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    first, second = declare(), declare()
    target = f"case when id < 500 then '{first}' when id < 999 then '{second}' else 'nowhere' end"
    frame = spark.range(1000, numPartitions=4).selectExpr(
        "cast(id as string) value", f"{target} as topic"
    )
    with pytest.raises(Exception, match=r"STREAM_NOT_FOUND.*'nowhere'.*declare it first"):
        write(frame, amqp_url)
    assert (count(client, first), count(client, second)) == (0, 0)
    write(frame.where("topic <> 'nowhere'"), amqp_url)
    assert values(client, first) == list(range(500))
    assert values(client, second) == list(range(500, 999))


def test_a_task_that_fails_and_runs_again_leaves_its_rows_once(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare, tmp_path: Path
) -> None:
    stream = declare()
    failed = str(tmp_path / "failed")

    @udf("string")
    def large(number):  # type: ignore[no-untyped-def]  # with types Spark would guess, and warn
        """Fails for the first time, when much of the task's rows is staged."""
        if number == 11_999 and not Path(failed).exists():
            Path(failed).touch()
            raise RuntimeError("for the first time")
        return f"{number:01000d}"

    frame = spark.range(12_000, numPartitions=1).select(large("id").alias("value"))
    write(frame, amqp_url, topic=stream)
    assert Path(failed).exists()
    assert values(client, stream) == list(range(12_000))


def test_rows_are_invisible_until_the_driver_commits_and_stay_when_it_aborts_then(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream = declare()
    options = {"url": amqp_url, "topic": stream}
    writer = batch_writer(numbers(spark, 1).schema, options, overwrite=False)
    messages = [writer.write(iter([batch(b"1", b"2")])), writer.write(iter([batch(b"3")])), None]
    assert count(client, stream) == 0
    writer.commit(messages)
    assert values(client, stream) == [1, 2, 3]
    writer.abort(messages)
    writer.commit(messages)
    assert values(client, stream) == [1, 2, 3]


def test_an_abort_drops_what_is_staged(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream = declare()
    options = {"url": amqp_url, "topic": stream}
    writer = batch_writer(numbers(spark, 1).schema, options, overwrite=False)
    message = writer.write(iter([batch(b"1")]))
    writer.abort([message, None])
    with pytest.raises(WriteError, match="staged rows are missing; nothing was written"):
        writer.commit([message])
    assert count(client, stream) == 0


def test_an_empty_frame_writes_nothing(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream = declare()
    write(numbers(spark, 10).where("false"), amqp_url, topic=stream)
    assert count(client, stream) == 0


# Once


def test_a_version_that_an_application_wrote_before_is_dropped(
    spark: SparkSession, amqp_url: str, client: StreamClient, declare: Declare
) -> None:
    stream, other = declare(), declare()
    app = uuid.uuid4().hex

    def write_version(version: int, first: int, topic: str = stream) -> None:
        frame = numbers(spark, 10).selectExpr(f"cast(value + {first} as string) value")
        write(frame, amqp_url, topic=topic, txnAppId=app, txnVersion=version)

    for version in range(10):
        write_version(version, 10 * version)
    for version in (9, 0):  # one that the broker remembers, and one of long ago
        write_version(version, 1000)
    write_version(9, 0, other)
    assert values(client, stream) == list(range(100))
    assert values(client, other) == list(range(10))


def test_a_batch_of_a_foreach_batch_is_written_once_with_its_version(
    spark: SparkSession,
    amqp_url: str,
    client: StreamClient,
    declare: Declare,
    tmp_path: Path,
) -> None:
    source, target = declare(), declare()
    fill(client, source, 300)
    app = uuid.uuid4().hex

    def run() -> None:
        frame = spark.readStream.format("leveret").options(
            url=amqp_url, subscribe=source, startingOffsets="earliest"
        )
        writer = (
            frame.load()
            .select("value")
            .writeStream.foreachBatch(
                lambda rows, version: write(
                    rows, amqp_url, topic=target, txnAppId=app, txnVersion=version
                )
            )
        )
        query = writer.option("checkpointLocation", tmp_path / "checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    forget_commit(tmp_path / "checkpoint")
    run()
    assert values(client, target) == list(range(300))


def test_a_query_whose_checkpoint_lost_its_last_batch_writes_nothing_twice(
    spark: SparkSession,
    amqp_url: str,
    client: StreamClient,
    declare: Declare,
    tmp_path: Path,
) -> None:
    source, target = declare(2), declare()
    checkpoint = tmp_path / "checkpoint"
    for done in range(3):
        fill(client, source, 600, first=600 * done)
        run_copy(spark, amqp_url, (source, target), checkpoint)
        assert values(client, target) == list(range(600 * (done + 1)))
        forget_commit(checkpoint)
    run_copy(spark, amqp_url, (source, target), checkpoint)
    assert values(client, target) == list(range(1800))


def test_complete_mode_writes_the_whole_result_again(
    spark: SparkSession,
    amqp_url: str,
    client: StreamClient,
    declare: Declare,
    tmp_path: Path,
) -> None:
    source, target = declare(1), declare(1)
    for rows in (3, 2):
        fill(client, source, rows)
        frame = spark.readStream.format("leveret").options(
            url=amqp_url, subscribe=source, startingOffsets="earliest"
        )
        counted = frame.load().groupBy("key").count().selectExpr("key", "string(count) value")
        writer = counted.writeStream.format("leveret").options(url=amqp_url, topic=target)
        query = writer.outputMode("complete").option("checkpointLocation", tmp_path / "checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()
    assert values(client, target) == [1, 1, 1, 1, 2, 2]
