"""The load generator counts exactly what was sent, however the bytes are cut."""

from __future__ import annotations

import multiprocessing
import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from benchmarks.brokers import Broker
from benchmarks.load import Consumer, Publisher, publish_batches, queue_names
from benchmarks.measure import LoadResult, measure_load, percentile_ms
from benchmarks.report import combine, ratio
from benchmarks.scenarios import SCENARIOS, LoadScenario, topic_binding, topic_keys
from benchmarks.wire import (
    BrokerError,
    ConfirmCounter,
    DeliveryCounter,
    PublishBatch,
    encode_acks,
    encode_publish,
)
from tests.benchmarks.fake_broker import FakeBroker

BODY_BYTES = 16
SMALL = LoadScenario(
    name="small",
    about="for these tests",
    body_bytes=BODY_BYTES,
    confirm_window=1000,
    prefetch=500,
    ack_every=125,
)


def delivery(tag: int, *, sent_ns: int = 0, routing_key: str = "key") -> bytes:
    parts = (
        commands.Basic.Deliver("c00", tag, False, "", routing_key),
        header.ContentHeader(0, BODY_BYTES, commands.Basic.Properties(delivery_mode=1)),
        body.ContentBody(sent_ns.to_bytes(8, "big") + bytes(BODY_BYTES - 8)),
    )
    return b"".join(frame.marshal(part, 1) for part in parts)


def confirm(tag: int, *, multiple: bool = False) -> bytes:
    return frame.marshal(commands.Basic.Ack(tag, multiple), 1)


def frames(data: bytes) -> list[object]:
    found = []
    while data:
        used, _, value = frame.unmarshal(data)
        found.append(value)
        data = data[used:]
    return found


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def count_deliveries(counter: DeliveryCounter, data: bytes, *, now_ns: int | None = None) -> int:
    counter.space()[: len(data)] = data
    return counter.advance(len(data), now_ns=now_ns)


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


@settings(derandomize=True, deadline=None)
@given(count=st.integers(min_value=1, max_value=60), cuts=CUTS)
def test_every_delivery_is_counted_once_however_the_stream_is_cut(count, cuts):
    stream = b"".join(delivery(tag) for tag in range(1, count + 1))
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    new = [count_deliveries(counter, piece) for piece in pieces(stream, cuts)]
    assert sum(new) == counter.count == count


@settings(derandomize=True, deadline=None)
@given(cuts=CUTS)
def test_an_unfinished_delivery_is_not_counted(cuts):
    stream = b"".join(delivery(tag) for tag in range(1, 11))[:-1]
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    for piece in pieces(stream, cuts):
        count_deliveries(counter, piece)
    assert counter.count == 9


@settings(derandomize=True, deadline=None)
@given(every=st.integers(min_value=1, max_value=9), cuts=CUTS)
def test_the_sampled_latencies_do_not_depend_on_how_the_stream_is_cut(every, cuts):
    stream = b"".join(delivery(tag, sent_ns=tag) for tag in range(1, 41))
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=every)
    for piece in pieces(stream, cuts):
        count_deliveries(counter, piece, now_ns=1000)
    assert counter.latencies_ns == [1000 - tag for tag in range(1, 41, every)]


def test_bytes_that_came_with_the_set_up_are_counted_with_the_first_read():
    stream = delivery(1) + delivery(2)
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    counter.feed(stream[:90])
    assert count_deliveries(counter, stream[90:]) == 2


def test_a_missing_delivery_is_an_error():
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    with pytest.raises(BrokerError, match="after 0 deliveries"):
        count_deliveries(counter, delivery(1) + delivery(3))


def test_a_delivery_of_another_size_is_an_error():
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    count_deliveries(counter, delivery(1))
    longer = delivery(2, routing_key="longer key")
    with pytest.raises(BrokerError, match="after 1 deliveries"):
        count_deliveries(counter, longer + delivery(3))


def test_a_channel_close_among_deliveries_is_named_when_the_connection_ends():
    counter = DeliveryCounter(body_bytes=BODY_BYTES, sample_every=1)
    close = frame.marshal(commands.Channel.Close(406, "unknown delivery tag 9", 60, 80), 1)
    count_deliveries(counter, delivery(1) + close)
    assert counter.unexplained() == "Channel.Close 406 unknown delivery tag 9"


@st.composite
def confirm_streams(draw):
    """Acks in any order a broker may send them: single, or multiple over what may be acked."""
    tags = draw(st.permutations(range(1, draw(st.integers(min_value=1, max_value=30)) + 1)))
    return [(tag, draw(st.booleans())) for tag in tags]


@settings(derandomize=True, deadline=None)
@given(acks=confirm_streams(), cuts=CUTS)
def test_confirms_in_any_order_count_each_message_once(acks, cuts):
    covered: set[int] = set()
    for tag, multiple in acks:
        covered |= set(range(1, tag + 1)) if multiple else {tag}
    counter = ConfirmCounter()
    stream = b"".join(confirm(tag, multiple=multiple) for tag, multiple in acks)
    for piece in pieces(stream, cuts):
        counter.feed(piece)
    assert counter.confirmed == len(covered)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (commands.Basic.Nack(1), "Basic.Nack"),
        (commands.Channel.Close(404, "no exchange", 60, 40), "Channel.Close 404 no exchange"),
    ],
)
def test_anything_but_an_ack_is_no_confirm(method, words):
    with pytest.raises(BrokerError, match=words):
        ConfirmCounter().feed(confirm(1) + frame.marshal(method, 1))


def test_acks_are_what_another_codec_reads():
    found = frames(encode_acks(range(125, 501, 125), channel=1, multiple=True))
    assert [(ack.name, ack.delivery_tag, ack.multiple) for ack in found] == [
        ("Basic.Ack", tag, True) for tag in (125, 250, 375, 500)
    ]


def test_every_message_of_a_batch_carries_the_send_time_and_nothing_else_changes():
    properties = commands.Basic.Properties(delivery_mode=2)
    messages = [
        encode_publish(exchange="x", routing_key=key, body_bytes=BODY_BYTES, properties=properties)
        for key in ("one", "two")
    ]
    found = frames(PublishBatch(messages, BODY_BYTES).stamped(123456789))
    assert [one.routing_key for one in found[::3]] == ["one", "two"]
    assert [one.properties.delivery_mode for one in found[1::3]] == [2, 2]
    content = (123456789).to_bytes(8, "big") + bytes(8)
    assert [one.value for one in found[2::3]] == [content, content]


def test_each_topic_key_matches_exactly_one_binding():
    patterns = [
        re.compile(topic_binding(index).replace(".*.", r"\.[^.]+\.").replace(".#", r"(\..*)?"))
        for index in range(20)
    ]
    keys = topic_keys(20)[:500]
    assert {sum(bool(one.fullmatch(key)) for one in patterns) for key in keys} == {1}
    assert len(set(keys)) == 500


def test_all_routing_keys_of_a_scenario_are_equally_long():
    assert len({len(key) for key in topic_keys(1000)}) == 1
    for scenario in SCENARIOS:
        if isinstance(scenario, LoadScenario):
            assert len({len(name) for name in queue_names(scenario)}) == 1


def test_messages_with_full_properties_differ_but_are_equally_long():
    scenario = LoadScenario(name="full", about="", body_bytes=BODY_BYTES, full_properties=True)
    first, second = (batch.stamped(0) for batch in publish_batches(scenario, 0)[:2])
    assert len(first) == len(second)
    ids = [one.properties.correlation_id for one in frames(first + second)[1::3]]
    assert len(set(ids)) == 2 * scenario.batch


def test_scenario_names_are_unique():
    names = [scenario.name for scenario in SCENARIOS]
    assert sorted(set(names)) == sorted(names)


def test_percentiles_are_taken_by_nearest_rank():
    ordered_ns = [index * 1_000_000 for index in range(1000)]
    assert percentile_ms(ordered_ns, 0.5) == 500
    assert percentile_ms(ordered_ns, 0.999) == 999
    assert percentile_ms([], 0.5) is None


def result(*, broker: str, rate: float, cpu_us: float | None = 1.0) -> LoadResult:
    return LoadResult(
        scenario="s",
        broker=broker,
        received_per_s=rate,
        confirmed_per_s=None,
        latency_p50_ms=1.0,
        latency_p99_ms=1.0,
        latency_p999_ms=1.0,
        broker_us_per_message=cpu_us,
        broker_rss_mb=1.0,
        publisher_us_per_message=1.0,
        consumer_us_per_message=1.0,
    )


def test_repeated_runs_are_combined_by_their_median():
    runs = [result(broker="leveret", rate=rate) for rate in (100.0, 900.0, 300.0)]
    assert combine(runs) == result(broker="leveret", rate=300.0)


def test_a_ratio_needs_both_numbers():
    ours = result(broker="leveret", rate=300.0)
    theirs = result(broker="rabbitmq", rate=100.0, cpu_us=None)
    assert ratio(ours, theirs, "received_per_s") == 3.0
    assert ratio(ours, theirs, "broker_us_per_message") is None


def test_published_confirmed_and_received_agree_over_a_socket():
    with FakeBroker() as broker:
        queues = queue_names(SMALL)
        consumer = Consumer(broker.url, SMALL, queues)
        publisher = Publisher(broker.url, SMALL, index=0)
        publisher.sock.settimeout(10)
        for _ in range(10):
            publisher.publish(time.monotonic_ns())
            while not publisher.may_publish():
                publisher.read()
        while publisher.confirmed < publisher.sent:
            publisher.read()
        while consumer.counter.count < publisher.sent:
            consumer.read(measuring=True)
        consumer.connection.close()
        publisher.connection.close()
    assert publisher.sent == 10 * SMALL.batch
    assert broker.delivered == {queues[0]: publisher.sent}
    assert broker.acked == [(tag, True) for tag in range(125, publisher.sent + 1, 125)]


def test_a_whole_run_measures_and_leaves_no_queue_behind():
    with FakeBroker() as broker:
        measured = measure_load(Broker("fake", broker.url, None), SMALL, seconds=0.2)
    assert measured.received_per_s > 0
    assert measured.confirmed_per_s is not None
    assert measured.confirmed_per_s > 0
    assert measured.latency_p50_ms is not None
    assert measured.broker_us_per_message is None
    assert not broker.queues
    assert not multiprocessing.active_children()


def test_a_run_that_the_broker_refuses_fails_and_ends_its_processes():
    with (
        FakeBroker(publishes_before_close=100) as broker,
        pytest.raises(BrokerError, match=r"Channel.Close 406 enough"),
    ):
        measure_load(Broker("fake", broker.url, None), SMALL, seconds=5)
    assert not broker.queues
    assert not multiprocessing.active_children()
