"""`leveret bench`: its counts agree, its queues are gone afterwards, its percentiles are right."""

import json
import math
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.commands.latency import Latencies
from tests.support.admin import Api
from tests.support.waiting import eventually


def bench_queues(api) -> list[str]:
    names = [row["name"] for row in api.call("GET", "queues").json]
    return [name for name in names if name.startswith("leveret-bench-")]


@pytest.mark.leveret_only
@pytest.mark.parametrize("kind", ["quorum", "classic", "transient", "stream"])
def test_what_is_published_is_consumed_and_nothing_is_left(leveret, api, kind):
    plan = ["--type", kind, "--queues", "2", "--publishers", "2", "--consumers", "3"]
    told = leveret("bench", *plan, "--seconds", "0.3", "--rate", "300", "--size", "100", "--json")
    assert told.code == 0, told
    found = json.loads(told.out)
    published = found["published"]["messages"]
    assert published > 0
    assert found["confirmed"]["messages"] == published
    readers = 1 if kind != "stream" else 2  # the first of the two queues has two of the three
    assert published <= found["consumed"]["messages"] <= readers * published
    assert found["missing"] == 0
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert bench_queues(api) == []


@pytest.mark.leveret_only
def test_publishers_alone_without_confirms_are_counted_as_well(leveret):
    plan = ["--type", "transient", "--consumers", "0", "--no-confirm", "--seconds", "0.2"]
    told = leveret("bench", *plan, "--json")
    found = json.loads(told.out)
    assert found["published"]["messages"] > 0
    assert found["confirmed"]["messages"] == found["consumed"]["messages"] == found["missing"] == 0


@pytest.mark.leveret_only
def test_the_result_is_a_table_for_people(leveret):
    told = leveret("bench", "--seconds", "0.2", "--no-ack", "--type", "classic")
    assert told.code == 0
    for word in ("published", "confirmed", "consumed", "p99", "MB/s"):
        assert word in told.out
    assert "of a core" in told.err


@pytest.mark.leveret_only
def test_ctrl_c_tells_what_was_measured_and_leaves_nothing(start, api):
    command = start("bench", "--seconds", "600", "--queues", "3", "--json")

    def consuming() -> bool:
        queues = bench_queues(api)
        return any(api.call("GET", "queues", "/", name).json.get("consumers") for name in queues)

    eventually(consuming, "the load")
    command.process.send_signal(signal.SIGINT)
    told = command.end()
    assert told.code == 130, told
    assert "interrupted" in told.err
    assert bench_queues(api) == []


@pytest.mark.leveret_only
def test_a_broker_that_is_not_there_is_one_line(leveret):
    leveret("bench", "--amqp-url", "amqp://127.0.0.1:1").fails(1, "--amqp-url")
    leveret("bench", "--size", "3").fails(2, "--size")


@pytest.mark.leveret_only
def test_a_broker_that_dies_is_one_line(start, start_broker):
    broker = start_broker()
    command = start(
        "bench",
        "--seconds",
        "600",
        "--publishers",
        "3",
        "--consumers",
        "3",
        env={"LEVERET_AMQP_URL": broker.amqp_url()},
    )
    api = Api(broker.host, broker.http_port)
    eventually(lambda: bench_queues(api), "the load")
    api.close()
    broker.kill()
    told = command.end()
    assert told.code == 1
    assert "Traceback" not in told.err
    assert told.err.startswith("leveret: ")


@given(st.lists(st.floats(1e-6, 1000.0), min_size=1, max_size=200), st.sampled_from([50, 99, 100]))
def test_a_percentile_is_within_two_per_cent(values, percent):
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact = sorted(values)[math.ceil(len(values) * percent / 100) - 1]
    assert latencies.percentile_s(percent) == pytest.approx(exact, rel=0.02)
    assert latencies.most_s == max(values)


def test_no_latency_is_none():
    assert Latencies().percentile_s(99) == 0
