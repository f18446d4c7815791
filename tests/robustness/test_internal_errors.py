"""Bugs planted at every boundary of a node: each ends what it belongs to, and nobody else notices.

The node runs in the test's own process, its clients in threads.
"""

import contextlib
import gc
import json
import re
import signal
import sys
from functools import partial
from http.client import HTTPConnection, HTTPException

import cbor2
import pytest
import trio

from broker import server
from broker.config import Config
from broker.connection.connection import Connection
from broker.connection.heartbeat import Heartbeat
from broker.http.router import Router
from broker.internal_errors import PLACES
from broker.management.sampler import Sampler
from broker.memory_watch import MemoryWatch
from broker.node import Node
from broker.streams.group_book import GroupBook
from broker.streams.requests import Requests
from broker.streams.session import StreamSession
from broker.topics.sessions import Session, Sessions
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.streams import connect as connect_streams
from queues.bell import Bell
from queues.stream.groups import ConsumerGroup
from queues.stream.names import OFFSETS_STREAM
from queues.stream.partition import StreamPartition
from tests.support.admin import Api
from tests.support.wire import ConnectionClosedError, WireConnection

DEADLINE_S = 60
STREAM_ERRORS = (ConnectionLostError, RefusedError)
COUNTS = re.compile(rb'^leveret_internal_errors_total{where="(.+?)"} (\S+)$', re.MULTILINE)
PORTS = re.compile(r"amqp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)")


class PlantedError(Exception):
    """A bug."""


class House:
    """A node in this process. What blocks is asked of it in a thread."""

    def __init__(self, line, node, ended):
        self.ended = ended
        self.amqp, self.http = map(int, PORTS.search(line).groups())
        self.node = node
        self.url = f"amqp://guest:guest@127.0.0.1:{self.amqp}/%2F"

    def connect(self, **options):
        return WireConnection.connect(self.url, **options)

    def api(self):
        return Api("127.0.0.1", self.http)

    def get(self, path):
        connection = HTTPConnection("127.0.0.1", self.http, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def internal_errors(self):
        _, text = self.get("/metrics")
        found = COUNTS.findall(text)
        assert [where.decode() for where, _ in found] == list(PLACES)
        return {where.decode(): float(count) for where, count in found if float(count)}


@pytest.fixture
async def start(tmp_path, monkeypatch, nursery):
    """Starts a node on the same data each time."""
    nodes, lines = [], []

    def make(config):
        nodes.append(Node(config))
        return nodes[-1]

    async def start():
        ended = trio.Event()

        async def run(task_status):
            await server.serve(config, announce=lines.append, task_status=task_status)
            ended.set()

        await nursery.start(run)
        return House(lines[-1], nodes[-1], ended)

    monkeypatch.setattr(server, "Node", make)
    monkeypatch.setattr(server, "_spare_the_collector", gc.collect)
    interval = sys.getswitchinterval()
    config = Config(amqp_port=0, http_port=0, data_dir=tmp_path / "data", auth_failure_delay_s=0)
    yield start
    sys.setswitchinterval(interval)


@pytest.fixture
async def house(start):
    return await start()


class Plant:
    """Makes a method fail once, when somebody calls it; `met` is set then."""

    def __init__(self, monkeypatch, owner, name):
        self.met = trio.Event()
        real = getattr(owner, name)

        def plain(*args, **kwargs):
            if not self.met.is_set():
                self.met.set()
                raise PlantedError(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, plain)


def bystander(house):
    """A connection with a consumer of a durable queue, and what proves that they still work."""
    connection = house.connect()
    channel = connection.open_channel()
    channel.declare_queue("bystander", durable=True)
    channel.consume("bystander")

    def go_on():
        channel.publish("", "bystander", b"are you there?")
        channel.ack(channel.delivery().delivery_tag)

    return connection, go_on


async def in_thread(work, *arguments):
    return await trio.to_thread.run_sync(partial(work, *arguments), abandon_on_cancel=True)


# Ways to have each boundary crossed. Where a client pays for it, it is one of its own.


def beat(house):
    connection = house.connect(heartbeat_s=1)
    with contextlib.suppress(ConnectionError):
        connection.read_until_eof(DEADLINE_S)
    connection.abort()


def expire(house):
    channel = house.connect().open_channel()
    channel.declare_queue("expiring", arguments={"x-message-ttl": 50})
    channel.publish("", "expiring", b"soon gone")
    channel.conn.abort()


def declare(house):
    """Its answer is written by a flush; where that fails, the client is dropped."""
    with contextlib.suppress(ConnectionError, ConnectionClosedError, AssertionError):
        house.connect().open_channel().declare_queue("declared", auto_delete=True)


def declare_durable(house):
    """Its answer comes when the disk has it."""
    with contextlib.suppress(ConnectionError, ConnectionClosedError, AssertionError):
        house.connect().open_channel().declare_queue("declared", durable=True)


def knock(house):
    with contextlib.suppress(ConnectionError, ConnectionClosedError, AssertionError):
        house.connect().abort()


def ask(house):
    with contextlib.suppress(ConnectionError, HTTPException):
        house.get("/health")


def join_group(house):
    stream(house)
    api = house.api()
    api.call("GET", "topics", "things", "consume", query="group=g")
    api.close()


def stream(house):
    connection = house.connect()
    channel = connection.open_channel()
    channel.declare_queue("things", durable=True, arguments={"x-queue-type": "stream"})
    connection.abort()


def ask_streams(house):
    stream(house)
    with contextlib.suppress(*STREAM_ERRORS), connect_streams(house.url) as streams:
        streams.metadata("things")


def read_stream(house):
    """A fetch; its answer comes from a thread."""
    stream(house)
    with connect_streams(house.url) as streams, streams.producer("things") as producer:
        producer.send(b"a thing")
        producer.flush()


def nothing(house):
    """It comes by itself."""


BOUNDARIES = [
    # a method that fails, how to have it called, where that is counted
    pytest.param(Heartbeat, "_look", beat, "timer", id="heartbeat"),
    pytest.param(Bell, "_ring", expire, "timer", id="queue-timer"),
    pytest.param(StreamPartition, "tick", stream, "timer", id="stream-tick"),
    pytest.param(ConsumerGroup, "tick", join_group, "groups", id="group-tick"),
    pytest.param(GroupBook, "_tell", join_group, None, id="group-tell"),
    pytest.param(Connection, "flush", declare, "flush", id="flush"),
    pytest.param(Connection, "_handle_all", declare, "connection", id="turn"),
    pytest.param(Connection, "_end_wait", declare_durable, None, id="resume"),
    pytest.param(Connection, "_start", knock, "connection", id="handshake"),
    pytest.param(server.Server, "_serve", knock, "accept", id="accept"),
    pytest.param(Requests, "_carry_out", ask_streams, "stream_session", id="stream-request"),
    pytest.param(StreamSession, "_take_turn", ask_streams, "stream_session", id="stream-turn"),
    pytest.param(Router, "dispatch", ask, "http", id="http-route"),
    pytest.param(MemoryWatch, "look", nothing, "watch", id="memory-watch"),
    pytest.param(Sampler, "sample", nothing, "watch", id="sampler"),
    pytest.param(Sessions, "_keep", join_group, "background", id="topic-session"),
    pytest.param(Session, "beat", join_group, "background", id="topic-beat"),
]


@pytest.mark.provokes_internal_errors
@pytest.mark.parametrize(("owner", "name", "provoke", "where"), BOUNDARIES)
async def test_a_bug_ends_what_it_belongs_to_and_nothing_else(
    house, monkeypatch, owner, name, provoke, where
):
    with trio.fail_after(DEADLINE_S):
        connection, go_on = await in_thread(bystander, house)
        await in_thread(go_on)
        assert await in_thread(house.internal_errors) == {}
        plant = Plant(monkeypatch, owner, name)
        await in_thread(provoke, house)
        await plant.met.wait()
        await in_thread(go_on)
        await in_thread(provoke, house)  # as if nothing had happened
        counted = await in_thread(house.internal_errors)
        assert sum(counted.values()) == 1
        assert where is None or counted == {where: 1}
        status, body = await in_thread(house.get, "/health")
        assert (status, json.loads(body)["status"]) == (200, "ok")
        connection.abort()


BAD_RECORDS = {
    "empty": (b"", b""),
    "no-cbor": (b"\xff\xff", b"\xff"),
    "another-shape": (cbor2.dumps([1]), cbor2.dumps({})),
    "of-the-future": (cbor2.dumps(["new", "g"]), cbor2.dumps([99])),
    "too-deep": (b"\x81" * 500 + b"\x00", b"\x81" * 500 + b"\x00"),
}


class Waiting:
    """Appends a record; see `StreamPartition.append`."""

    def __init__(self):
        self.done = trio.Event()

    def appended(self, verdict, first_offset):
        self.done.set()


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS)
async def test_a_bad_record_among_the_groups_is_the_trouble_of_its_vhost_alone(
    start, house, record
):
    with trio.fail_after(DEADLINE_S):
        await in_thread(join_group, house)
        partition = house.node.vhosts["/"].queues[OFFSETS_STREAM].partitions[0]
        waiting = Waiting()
        partition.append([record[0]], [record[1]], [b""], waiting)
        house.node.flush()
        await waiting.done.wait()
        signal.raise_signal(signal.SIGTERM)
        await house.ended.wait()
        again = await start()
        connection, go_on = await in_thread(bystander, again)
        await in_thread(go_on)
        api = again.api()
        answer = await in_thread(
            partial(api.call, "GET", "topics", "things", "consume", query="group=g")
        )
        assert answer.status >= 400
        assert again.node.errors.total == 0
        connection.abort()
