"""Delayed messages listed, moved and cancelled: over HTTP, and by `leveret scheduled`."""

import json
import time

import pytest

from tests.durability.life import ConfirmingChannel
from tests.shell.process import leveret
from tests.support.frames import Queue
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError

pytestmark = pytest.mark.leveret_only

HOUR_MS = 3_600_000
TYPES = {
    "transient": {},
    "classic": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    "groups": {"durable": True, "arguments": {"x-message-groups": True}},
    "priorities": {"durable": True, "arguments": {"x-max-priority": 3}},
}


@pytest.fixture(params=TYPES)
def queue(request, scene, channel):
    return scene.queue(channel, **TYPES[request.param])


@pytest.fixture
def publish(scene, queue):
    confirming = ConfirmingChannel(scene.channel())

    def publish(body, delay_ms):
        confirming.publish("", queue, body, headers={"x-delay": delay_ms})

    return publish


def listed(api, queue):
    return [(row["payload"], row["id"]) for row in api.call("GET", "scheduled", "/", queue).json]


def test_scheduled_messages_are_listed_in_order_of_time(api, queue, publish, channel):
    before = time.time() * 1000
    for hours in (3, 1, 2):
        publish(b"%d" % hours, hours * HOUR_MS)
    publish(b"now", 0)
    rows = api.call("GET", "scheduled", "/", queue).json
    assert [row["payload"] for row in rows] == ["1", "2", "3"]
    assert all(row["due_ms"] >= before + HOUR_MS - 1000 for row in rows)
    counts = {row["name"]: row["messages_delayed"] for row in api.call("GET", "scheduled").json}
    assert counts[queue] == 3
    assert channel.count(queue) == 1, "delayed messages are not ready"
    first = api.call("GET", "scheduled", "/", queue, query="count=1").json
    assert [row["payload"] for row in first] == ["1"]


def test_a_moved_message_comes_at_its_new_time(api, queue, publish, channel):
    publish(b"sooner", HOUR_MS)
    publish(b"later", 500)
    ids = dict(listed(api, queue))
    later = {"due_ms": int(time.time() * 1000) + 2 * HOUR_MS}
    answer = api.call("PUT", "scheduled", "/", queue, str(ids["later"]), body=later)
    moved = answer.status == 204
    assert moved or answer.status == 404, "it may have come due meanwhile"
    answer = api.call("PUT", "scheduled", "/", queue, str(ids["sooner"]), body={"delay_ms": 0})
    assert answer.status == 204
    expected = {b"sooner"} if moved else {b"sooner", b"later"}
    channel.consume(queue)
    got = {channel.delivery().body for _ in expected}
    assert got == expected
    assert [body for body, _ in listed(api, queue)] == (["later"] if moved else [])


def test_a_cancelled_message_never_comes(api, queue, publish, channel):
    publish(b"unwanted", HOUR_MS)
    publish(b"wanted", HOUR_MS)
    ids = dict(listed(api, queue))
    assert api.call("DELETE", "scheduled", "/", queue, str(ids["unwanted"])).status == 204
    assert api.call("DELETE", "scheduled", "/", queue, str(ids["unwanted"])).status == 404
    assert listed(api, queue) == [("wanted", ids["wanted"])]
    api.call("PUT", "scheduled", "/", queue, str(ids["wanted"]), body={"delay_ms": 0})
    channel.consume(queue)
    assert channel.delivery().body == b"wanted"
    assert listed(api, queue) == []


@pytest.mark.parametrize(
    ("message_id", "body", "status"),
    [
        ("7", {"delay_ms": 1}, 404),
        ("x", {"delay_ms": 1}, 400),
        ("0", {}, 400),
        ("0", {"delay_ms": 1, "due_ms": 1}, 400),
        ("0", {"delay_ms": "soon"}, 400),
        ("0", {"delay_ms": 31 * 24 * HOUR_MS}, 400),
    ],
)
def test_bad_times_and_ids_are_refused(scene, api, channel, message_id, body, status):
    queue = scene.queue(channel)
    ConfirmingChannel(scene.channel()).publish("", queue, b"a", headers={"x-delay": HOUR_MS})
    answer = api.call("PUT", "scheduled", "/", queue, message_id, body=body)
    assert answer.status == status
    assert answer.json["reason"]
    assert len(listed(api, queue)) == 1


def test_purging_takes_delayed_messages_too(api, queue, publish, channel):
    for number in range(3):
        publish(b"%d" % number, HOUR_MS if number else 0)
    assert channel.rpc(Queue.Purge(queue=queue)).message_count == 3
    assert listed(api, queue) == []
    assert channel.count(queue) == 0


def test_a_queue_that_holds_delayed_messages_is_not_empty(queue, publish, channel):
    publish(b"later", HOUR_MS)
    with pytest.raises(ChannelClosedError) as refusal:
        channel.rpc(Queue.Delete(queue=queue, if_empty=True))
    assert refusal.value.method.reply_code == 406


def test_the_command_does_the_same(broker, scene, channel):
    queue = scene.queue(channel, **TYPES["quorum"])
    confirming = ConfirmingChannel(scene.channel())
    for body in (b"a", b"b"):
        confirming.publish("", queue, body, headers={"x-delay": HOUR_MS})
    env = {"LEVERET_URL": broker.http_url("")}

    def scheduled(*arguments):
        result = leveret("scheduled", *arguments, env=env)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    assert queue in scheduled("list")
    rows = json.loads(scheduled("list", queue, "--json"))
    ids = {row["payload"]: str(row["id"]) for row in rows}
    assert "Z" in scheduled("list", queue)
    assert "cancelled" in scheduled("cancel", queue, ids["a"])
    assert "due in 0 ms" in scheduled("move", queue, ids["b"], "0")
    eventually(lambda: channel.count(queue) == 1, "the moved message")
    refused = leveret("scheduled", "cancel", queue, ids["a"], env=env)
    assert refused.returncode == 1
    assert "no message" in refused.stderr
