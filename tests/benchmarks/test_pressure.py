"""The pressure benchmark: what it publishes it gets back, and it would notice if it did not."""

from argparse import Namespace
from collections import deque
from types import SimpleNamespace

import pytest

from benchmarks.brokers import Broker, ProcessTree
from benchmarks.memory_limit import memory_limit
from benchmarks.pressure import crowd, exactly_once, slow_consumer, stuck_consumer
from benchmarks.wire import BrokerError

pytestmark = pytest.mark.leveret_only

OPTIONS = Namespace(publishers=5, each=100, seconds=0.2, slow_rate=100.0, patience=60.0)


@pytest.fixture
def target(broker):
    return Broker("leveret", broker.amqp_url(), ProcessTree(broker.pid))


@pytest.mark.parametrize("durable", [False, True])
def test_many_publishers_get_everything_confirmed_and_delivered(target, durable):
    outcome = crowd(target, OPTIONS, durable=durable)
    assert outcome.published == 500
    assert outcome.verdict == "all confirmed, each delivered once"
    assert outcome.peak_rss_mb > 10


@pytest.mark.parametrize("durable", [False, True])
def test_a_publisher_far_ahead_of_its_consumer_loses_nothing(target, durable):
    outcome = slow_consumer(target, OPTIONS, durable=durable)
    assert outcome.published > 100
    assert outcome.verdict == "all confirmed, each delivered once"


def test_a_stuck_consumer_holds_what_it_was_given(target):
    outcome = stuck_consumer(target, OPTIONS, body_bytes=16)
    assert outcome.published == 10_000
    assert "MB over ready" in outcome.verdict


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([0, 1], "1 lost"), ([0, 1, 1, 2], "1 delivered twice"), ([0, 1, 2, 9], "1 out of nowhere")],
)
def test_a_loss_a_repetition_and_an_invention_are_noticed(numbers, words):
    collector = SimpleNamespace(numbers=deque(numbers))
    with pytest.raises(BrokerError, match=words):
        exactly_once(collector, {0, 1, 2})


def test_without_a_control_group_the_broker_is_told_its_limit(monkeypatch):
    monkeypatch.setattr("benchmarks.memory_limit._candidates", lambda: iter(()))
    with memory_limit(1000 * 1024 * 1024) as limit:
        assert limit.prefix == ()
        assert limit.flags == ("--memory-limit", str(400 * 1024 * 1024))
