"""Options that make no sense are refused with words that say which, and what would."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from broker.protocol.stream_messages import Partition
from spark import StreamQueueSource
from spark.errors import OptionError
from spark.option_values import read_span_ms
from spark.options import batch_options, stream_options, wants_headers
from spark.places import Ago, Edge, Given, Time, Times, decode, encode, uids_of
from spark.subscriptions import Assigned, Matching, Named

S = {"subscribe": "orders"}

WRONG_IN_ANY_READ = [
    ({}, "one of subscribe, subscribePattern and assign is needed, not none"),
    ({**S, "assign": "{}"}, "not subscribe and assign"),
    ({"subscribe": ""}, "subscribe='': names of streams"),
    ({"subscribe": "a,,b"}, "subscribe='a,,b'"),
    ({"subscribe": "a,a"}, "each once"),
    ({"subscribePattern": "("}, "subscribePattern='('"),
    ({"subscribePattern": ""}, "subscribePattern is empty"),
    ({"assign": "[]"}, "assign: a JSON object"),
    ({"assign": "{}"}, "assign: a JSON object"),
    ({"assign": "orders"}, "assign: no JSON"),
    ({"assign": '{"orders": []}'}, "needs a list of partitions"),
    ({"assign": '{"orders": [-1]}'}, "-1 is no partition"),
    ({"assign": '{"orders": [true]}'}, "True is no partition"),
    ({"assign": '{"orders": [0, 0]}'}, "a partition is there twice"),
    ({"assign": '{"orders": [0], "orders": [1]}'}, "something is there twice"),
    ({**S, "startingOffsets": "newest"}, "startingOffsets='newest': earliest, latest"),
    ({**S, "startingOffsets": "10 minutes"}, "startingOffsets='10 minutes'"),
    ({**S, "startingOffsets": "-10 parsecs"}, "startingOffsets='-10 parsecs'"),
    ({**S, "startingOffsets": "{"}, "startingOffsets: no JSON"),
    ({**S, "startingOffsets": '{"orders": 5}'}, "'orders' needs a number for each"),
    ({**S, "startingOffsets": '{"orders": {"zero": 5}}'}, "'zero' is no partition of 'orders'"),
    ({**S, "startingOffsets": '{"orders": {"0": -3}}'}, "-3 for 'orders' 0"),
    ({**S, "startingOffsets": '{"orders": {"0": 1.5}}'}, "1.5 for 'orders' 0"),
    ({**S, "startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, "something is there twice"),
    ({**S, "startingOffsetsByTimestamp": "yesterday"}, "milliseconds since 1970"),
    ({**S, "startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "-1 for 'orders' 0"),
    (
        {**S, "startingOffsets": "latest", "startingOffsetsByTimestamp": "5"},
        "startingOffsets and startingOffsetsByTimestamp say the same",
    ),
    ({**S, "minPartitions": "0"}, "minPartitions='0': a whole number from 1"),
    ({**S, "minPartitions": "many"}, "minPartitions='many'"),
    ({**S, "failOnDataLoss": "yes"}, "failOnDataLoss='yes': true or false"),
    ({**S, "includeHeaders": "1"}, "includeHeaders='1': true or false"),
    ({**S, "startingoffset": "latest"}, "no option 'startingoffset'; is it startingOffsets?"),
    ({**S, "kafka.bootstrap.servers": "a:1"}, "no option 'kafka.bootstrap.servers'"),
    ({**S, "path": "orders"}, "no option 'path'"),
    ({**S, "url": "kafka://a"}, "url: 'kafka' is not a scheme"),
    ({**S, "url": "amqp://a:port"}, "url: "),
    ({**S, "url": "amqp://a", "host": "a"}, "url says what host says too"),
    ({**S, "url": "amqp://u:p@a", "user": "u"}, "url says what user says too"),
    ({**S, "url": "amqp://u:p@a", "password": "p"}, "url says what password says too"),
    ({**S, "port": "0"}, "port='0': a whole number from 1 to 65535"),
    ({**S, "port": "amqp"}, "port='amqp'"),
    ({**S, "reconnectTimeout": "long"}, "reconnectTimeout='long': a time such as"),
]
WRONG_IN_A_BATCH = [
    *WRONG_IN_ANY_READ,
    ({**S, "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming reads"),
    ({**S, "consumerGroup": "g"}, "consumerGroup is for streaming reads"),
    ({**S, "startingOffsets": "latest"}, "starts at the latest offset reads nothing"),
    ({**S, "startingOffsets": '{"orders": {"0": -1}}'}, "starts at the latest offset"),
    ({**S, "endingOffsets": "earliest"}, "ends at the earliest offset reads nothing"),
    ({**S, "endingOffsets": "last"}, "endingOffsets='last'"),
    (
        {**S, "endingOffsets": "latest", "endingOffsetsByTimestamp": "5"},
        "endingOffsets and endingOffsetsByTimestamp say the same",
    ),
]
WRONG_IN_A_STREAM = [
    *WRONG_IN_ANY_READ,
    ({**S, "endingOffsets": "latest"}, "endingOffsets is for batch reads"),
    ({**S, "endingOffsetsByTimestamp": "5"}, "endingOffsetsByTimestamp is for batch reads"),
    ({**S, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': a whole number from 1"),
    ({**S, "maxBytesPerTrigger": "1g"}, "maxBytesPerTrigger='1g'"),
    (
        {**S, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
        "minOffsetsPerTrigger=6 is more than maxOffsetsPerTrigger=5",
    ),
    ({**S, "maxTriggerDelay": "5m"}, "maxTriggerDelay is for minOffsetsPerTrigger"),
    ({**S, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"}, "maxTriggerDelay='5': a time"),
    ({**S, "consumerGroup": ""}, "consumerGroup: a name of 1 to 255"),
]
SCHEMAS = [
    ("body binary", "there is no column 'body'; there are key, value, topic"),
    ("value string", "column value is binary, not string"),
    ("partition bigint", "column partition is int, not bigint"),
    ("value binary not null", "column value must be nullable"),
    ("headers array<string>", "column headers is array<struct<key:string,value:binary>>"),
]


@pytest.mark.parametrize(("options", "text"), WRONG_IN_A_BATCH)
def test_what_is_wrong_in_a_batch_read_is_said(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as error:
        batch_options(options)
    assert text in str(error.value)


@pytest.mark.parametrize(("options", "text"), WRONG_IN_A_STREAM)
def test_what_is_wrong_in_a_streaming_read_is_said(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as error:
        stream_options(options)
    assert text in str(error.value)


@pytest.mark.parametrize(("options", "text"), WRONG_IN_ANY_READ)
def test_what_is_wrong_in_any_read_is_said_when_the_frame_is_made(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError) as error:
        StreamQueueSource(options).schema()
    assert text in str(error.value)


@pytest.mark.parametrize(("schema", "text"), SCHEMAS)
def test_a_schema_of_other_columns_is_refused(spark: SparkSession, schema: str, text: str) -> None:
    source = StreamQueueSource(S)
    for make in (source.reader, source.streamReader):
        with pytest.raises(OptionError) as error:
            make(StructType.fromDDL(schema))
        assert text in str(error.value)


def test_headers_that_are_refused_and_chosen_at_once_are_refused(spark: SparkSession) -> None:
    source = StreamQueueSource({**S, "includeHeaders": "false"})
    schema = StructType.fromDDL("headers array<struct<key: string, value: binary>>")
    with pytest.raises(OptionError, match="includeHeaders=false"):
        source.reader(schema)


def test_names_of_options_have_any_case_as_spark_gives_them() -> None:
    options = stream_options({"SUBSCRIBE": "a", "maxoffsetspertrigger": " 5 "})
    assert options.subscription == Named(("a",))
    assert options.limits.max_rows == 5


def test_subscriptions() -> None:
    assert batch_options({"subscribe": "b, a"}).subscription == Named(("a", "b"))
    assert batch_options({"subscribePattern": "o.*"}).subscription == Matching("o.*")
    assigned = batch_options({"assign": '{"b": [1, 0], "a": [2]}'}).subscription
    assert assigned == Assigned((Partition("a", 2), Partition("b", 0), Partition("b", 1)))


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("startingOffsets", "earliest", Edge(-2)),
        ("startingOffsets", " Latest ", Edge(-1)),
        ("startingOffsets", "-10 minutes", Ago(600_000)),
        ("startingOffsets", "-1h", Ago(3_600_000)),
        ("startingOffsets", '{"a": {"0": -2}}', Given(((Partition("a", 0), -2),))),
        ("startingOffsetsByTimestamp", "1700000000000", Time(1_700_000_000_000)),
        ("startingOffsetsByTimestamp", '{"a": {"1": 7}}', Times(((Partition("a", 1), 7),))),
    ],
)
def test_places(name: str, text: str, place: object) -> None:
    assert stream_options({**S, name: text}).starting == place


def test_defaults_are_those_of_kafka() -> None:
    batch, stream = batch_options(S), stream_options(S)
    assert (batch.starting, batch.ending) == (Edge(-2), Edge(-1))
    assert stream.starting == Edge(-1)
    assert stream.fail_on_data_loss
    assert not stream.limits.any
    assert not wants_headers(S)


@pytest.mark.parametrize(
    ("options", "host", "port", "user", "password", "vhost", "others"),
    [
        ({}, "127.0.0.1", 5672, "guest", "guest", "/", ()),
        ({"host": "a", "port": "7"}, "a", 7, "guest", "guest", "/", ()),
        ({"host": "a", "vhost": "v", "user": "u", "password": "p"}, "a", 5672, "u", "p", "v", ()),
        ({"url": "amqp://u:p@a:1,b:2/v"}, "a", 1, "u", "p", "v", (("b", 2),)),
        ({"url": "amqp://u@a", "password": "@:/"}, "a", 5672, "u", "@:/", "/", ()),
        ({"url": "amqp://a/%2F", "user": "u", "password": "p"}, "a", 5672, "u", "p", "/", ()),
    ],
)
def test_brokers(
    options: dict[str, str],
    host: str,
    port: int,
    user: str,
    password: str,
    vhost: str,
    others: tuple[tuple[str, int], ...],
) -> None:
    address = batch_options({**S, **options}).broker.address
    assert (address.host, address.port, address.others) == (host, port, others)
    assert (address.user, address.password, address.vhost) == (user, password, vhost)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("15 m", 900_000),
        ("2 hours", 7_200_000),
        ("1 Day", 86_400_000),
        ("250ms", 250),
        ("1 week", 604_800_000),
        ("5", None),
        ("-5s", None),
        ("s", None),
        ("5 s s", None),
        ("5 sss", None),
    ],
)
def test_spans_of_time(text: str, ms: int | None) -> None:
    assert read_span_ms(text) == ms


OFFSETS = st.dictionaries(
    st.builds(Partition, st.text(max_size=3), st.integers(0, 1023)), st.integers(0, 2**63 - 1)
)


@given(OFFSETS, st.randoms(use_true_random=False))
def test_offsets_have_one_text_and_come_back_from_it(
    offsets: dict[Partition, int], random: object
) -> None:
    items = list(offsets.items())
    random.shuffle(items)
    uids = {partition.stream: f"uid of {partition.stream}" for partition, _ in items[::2]}
    text = json.dumps(encode(dict(items), uids))
    assert text == json.dumps(encode(offsets, dict(reversed(uids.items()))))
    assert decode(json.loads(text)) == offsets
    assert uids_of(json.loads(text)) == uids
    assert json.dumps(encode(decode(json.loads(text)), uids)) == text
