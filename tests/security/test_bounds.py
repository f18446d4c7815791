"""Rights to names of one's own are not rights to all of a node's memory."""

import os
import stat

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from broker.channel import consuming, transactions
from broker.channel.channel import Channel
from broker.etl_jobs.jobs import Jobs
from broker.protocol.errors import ChannelError
from broker.vhost import VHost
from queues.seams import AnyQueue
from tests.channel.fakes import FakeLink
from tests.conftest import StartBroker
from tests.queues.fakes import FakeContext
from tests.support.admin import Api
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually

LONG = {"x": "a" * 20_000}
NEWS = {"state": "running"}


@pytest.fixture
def vhost() -> VHost:
    return VHost("/", FakeContext())


def declare(vhost: VHost, name: str = "q", **arguments: object) -> AnyQueue:
    options = {"durable": False, "auto_delete": False, "owner": None, "user_of": None}
    return vhost.declare_queue(name, arguments=arguments, **options)  # type: ignore[arg-type]


def test_arguments_of_a_binding_are_short(vhost: VHost) -> None:
    queue = declare(vhost)
    vhost.bind("amq.fanout", queue, "k", {"x": "a" * 1000})
    with pytest.raises(ChannelError, match="binding cannot be stored"):
        vhost.bind("amq.fanout", queue, "k", LONG)
    assert len(list(vhost.exchanges["amq.fanout"].bindings())) == 1


def test_arguments_of_queues_and_exchanges_are_bounded(vhost: VHost) -> None:
    with pytest.raises(ChannelError, match="queue cannot be stored"):
        declare(vhost, x="a" * 300_000)
    options = {"durable": False, "auto_delete": False, "internal": False}
    with pytest.raises(ChannelError, match="exchange cannot be stored"):
        vhost.declare_exchange("e", "fanout", arguments={"x": "a" * 300_000}, **options)
    assert "q" not in vhost.queues
    assert "e" not in vhost.exchanges


def test_nothing_new_is_defined_while_memory_is_short(start_broker: StartBroker) -> None:
    """What is there may be declared again, by clients that come back, and be deleted."""
    broker = start_broker("--memory-limit", str(32 * 2**20))  # less than an idle node has
    api = Api(broker.host, broker.http_port)
    alarms = ("health", "checks", "alarms")
    eventually(lambda: api.call("GET", *alarms).status == 503, "the memory alarm")
    refused = [
        api.call("PUT", "queues", "/", "new", body={}),
        api.call("PUT", "exchanges", "/", "new", body={"type": "fanout"}),
        api.call("POST", "definitions", "/", body={"queues": [{"name": "new", "arguments": {}}]}),
    ]
    assert [answer.status for answer in refused] == [503, 503, 503]
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url())) as connection:
        for declare in ("queue_declare", "exchange_declare"):
            channel = connection.channel()
            with pytest.raises(ChannelClosedByBroker) as refusal:
                getattr(channel, declare)("new")
            assert refusal.value.reply_code == 506
        channel = connection.channel()
        channel.exchange_declare("amq.topic", "topic", durable=True)
        for options in ({"exclusive": True}, {"auto_delete": True}):  # of consumers, who drain it
            queue = channel.queue_declare("", **options).method.queue
            channel.queue_bind(queue, "amq.topic", "#")
    assert api.call("DELETE", "exchanges", "/", "new").status in (204, 404)


def test_uncommitted_publishes_of_a_channel_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PUBLISH_BYTES_MAX", 10_000)
    transaction = transactions.Transaction(Channel(1, FakeLink(), set()).deliveries)
    content = (b"", b"x" * 4000, 0, 0, 0)
    transaction.publish([content])
    transaction.publish([content])
    with pytest.raises(ChannelError, match="10000 bytes"):
        transaction.publish([content])
    transaction.rollback()
    transaction.publish([(b"", b"x" * 20_000, 0, 0, 0)])  # one may be longer by itself


def test_a_channel_has_a_bounded_number_of_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consuming, "CONSUMERS_MAX", 1)
    channel = Channel(1, FakeLink(), set())
    channel.deliveries.consumers["c"] = object()  # type: ignore[assignment]
    with pytest.raises(ChannelError, match="1 consumers at most"):
        consuming.consume(channel, pika.spec.Basic.Consume(queue="q", consumer_tag="d"))


def test_the_status_of_a_job_belongs_to_its_writer() -> None:
    jobs = Jobs()
    jobs.put("j", NEWS, 0, "ada")
    assert jobs.may_write("j", "ada")
    assert not jobs.may_write("j", "bob")
    assert jobs.may_write("other", "bob")
    jobs.delete("j")
    assert jobs.may_write("j", "bob")


def test_only_its_user_may_look_into_the_data_directory(tmp_path) -> None:
    before = os.umask(0o022)
    try:
        broker = BrokerProcess(tmp_path / "broker")
    finally:
        os.umask(before)
    try:
        found = [broker.data_dir, *broker.data_dir.rglob("*")]
        wide = [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert wide == []
    finally:
        assert broker.stop() == 0


def test_others_do_not_unbind_an_exclusive_queue(broker) -> None:
    parameters = pika.URLParameters(broker.amqp_url())
    with pika.BlockingConnection(parameters) as one, pika.BlockingConnection(parameters) as other:
        owner = one.channel()
        name = owner.queue_declare("", exclusive=True).method.queue
        owner.queue_bind(name, "amq.fanout", "k")
        with pytest.raises(ChannelClosedByBroker) as refusal:
            other.channel().queue_unbind(name, "amq.fanout", "k")
        assert refusal.value.reply_code == 405
        owner.queue_unbind(name, "amq.fanout", "k")
