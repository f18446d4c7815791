"""Bad options and columns are refused before anything runs, with words that help."""

import pytest
from pyspark.sql.types import StructType

from spark.errors import OptionError
from spark.sink import batch_writer, stream_writer
from spark.sink_options import Guarantee, batch_options, stream_options

pytestmark = pytest.mark.usefixtures("spark")  # which reads the schemas

GOOD = {"url": "amqp://127.0.0.1", "topic": "orders"}


def schema(columns: str) -> StructType:
    return StructType.fromDDL(columns)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"topicc": "orders"}, "no option 'topicc'; is it topic?"),
        ({"path": "orders"}, "no option 'path'"),
        ({"subscribe": "orders"}, "no option 'subscribe'"),
        ({"topic": ""}, "1 to 255 bytes"),
        ({"topic": "ü" * 128}, "1 to 255 bytes"),
        ({"deliveryGuarantee": "perhaps"}, "exactly_once or at_least_once"),
        ({"txnAppId": "app"}, "txnAppId and txnVersion go together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "app", "txnVersion": "one"}, "txnVersion='one': a whole number"),
        ({"txnAppId": "app", "txnVersion": "-1"}, "a whole number from 0"),
        ({"txnAppId": "", "txnVersion": "1"}, "1 to 128 bytes"),
        ({"txnAppId": "a\0b", "txnVersion": "1"}, "none of which is zero"),
        (
            {"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "at_least_once"},
            "are for deliveryGuarantee=exactly_once",
        ),
        ({"checkpointLocation": "/tmp/somewhere"}, "no option 'checkpointlocation'"),
    ],
)
def test_options_of_a_batch_that_make_no_sense_are_refused(
    options: dict[str, str], why: str
) -> None:
    given = {name.lower(): text for name, text in {**GOOD, **options}.items()}
    with pytest.raises(OptionError) as caught:
        batch_writer(schema("value string"), given, overwrite=False)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"asyncProgressTrackingEnabled": "true"}, "leave it out, or set deliveryGuarantee"),
        ({"txnAppId": "app", "txnVersion": "1"}, "no option 'txnappid'"),
        ({"startingOffsets": "earliest"}, "no option 'startingoffsets'"),
    ],
)
def test_options_of_a_query_that_make_no_sense_are_refused(
    options: dict[str, str], why: str
) -> None:
    given = {name.lower(): text for name, text in {**GOOD, **options}.items()}
    with pytest.raises(OptionError) as caught:
        stream_writer(schema("value string"), given, overwrite=False)
    assert why in str(caught.value)


def test_what_spark_adds_to_the_options_of_a_query_is_taken() -> None:
    given = {
        **GOOD,
        "checkpointlocation": "/tmp/somewhere",
        "queryname": "orders",
        "asyncprogresstrackingenabled": "false",
    }
    assert stream_options(given).guarantee is Guarantee.EXACTLY_ONCE
    late = {**GOOD, "asyncProgressTrackingEnabled": "true", "deliveryGuarantee": "At-Least-Once"}
    assert stream_options(late).guarantee is Guarantee.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("key string, amount double", "there is no column value, only key, amount"),
        ("value double", "column value is double; cast it to string or binary"),
        ("value string, key int", "column key is int; cast it"),
        ("value string, value binary", "there are 2 columns value"),
        ("value string, partition string", "column partition is string; it must be int"),
        ("value string, headers map<string, string>", "column headers is map<string,string>"),
        ("value string, headers array<string>", "it must be array<struct<key:string,value"),
        (
            "value string, headers array<struct<name string, value binary>>",
            "it must be array<struct<key:string,value:binary>>",
        ),
        ("value string, topic binary", "column topic is binary; it must be string"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: str, why: str) -> None:
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionError) as caught:
            make(schema(columns), GOOD, overwrite=False)
        assert why in str(caught.value)


def test_somebody_must_say_which_stream() -> None:
    given = {"url": GOOD["url"]}
    with pytest.raises(OptionError, match="neither the option topic nor a column topic"):
        batch_writer(schema("value string"), given, overwrite=False)
    batch_writer(schema("value string, topic string"), given, overwrite=False)
    assert batch_options(given).topic is None


def test_a_stream_cannot_be_overwritten_but_repeats_what_complete_mode_repeats() -> None:
    with pytest.raises(OptionError, match="append"):
        batch_writer(schema("value string"), GOOD, overwrite=True)
    stream_writer(schema("value string"), GOOD, overwrite=True)
