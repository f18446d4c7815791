"""Dead letters listed, looked at, replayed and dropped: over HTTP, and by `leveret dlq`."""

import json

import pytest

from tests.durability.life import ConfirmingChannel, Life, drain
from tests.shell.process import leveret
from tests.support.admin import Api
from tests.support.frames import Queue
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only

TYPES = {
    "transient": {},
    "classic": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
}


@pytest.fixture(params=TYPES)
def kind(request):
    return TYPES[request.param]


class Graveyard:
    """A work queue, the queue its dead letters go to, and a channel to both."""

    def __init__(self, scene, kind, **arguments):
        self.channel = scene.channel()
        self.confirming = ConfirmingChannel(scene.channel())
        self.dead = scene.queue(self.channel, **kind)
        sent_to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        given = {**kind.get("arguments", {}), **sent_to, **arguments}
        self.work = scene.queue(self.channel, **{**kind, "arguments": given})

    def bury(self, bodies, **properties):
        """Publish through an exchange and reject: each becomes a dead letter."""
        self.channel.bind(self.work, "amq.topic", "jobs.#")
        for body in bodies:
            self.confirming.publish("amq.topic", "jobs.paint", body, **properties)
            content = self.channel.get(self.work)
            self.channel.reject(content.delivery_tag, requeue=False)
        eventually(lambda: self.channel.count(self.dead) == len(bodies), "dead letters")


@pytest.fixture
def graveyard(scene, kind):
    return Graveyard(scene, kind)


def peeked(api, queue, **query):
    extra = "&".join(f"{key}={value}" for key, value in query.items())
    api_path = ["dlq", "/", queue]
    return api.call("GET", *api_path, query=extra).json


def test_queues_that_take_dead_letters_are_listed(api: Api, graveyard):
    graveyard.bury([b"a", b"b"])
    rows = {row["name"]: row for row in api.call("GET", "dlq", "/").json}
    assert rows[graveyard.dead]["messages_ready"] == 2
    assert rows[graveyard.dead]["sources"] == [graveyard.work]
    assert graveyard.work not in rows
    assert api.call("GET", "dlq").json == api.call("GET", "dlq", "/").json


def test_peeking_shows_where_a_message_died_and_leaves_it_there(api, graveyard):
    graveyard.bury([b"one", b"\xff\x00", b"three"], content_type="text/plain")
    rows = peeked(api, graveyard.dead)
    assert [row["payload"] for row in rows] == ["one", "/wA=", "three"]
    assert [row["payload_encoding"] for row in rows] == ["string", "base64", "string"]
    assert rows[0]["properties"].keys() == {"content_type", "delivery_mode", "headers"}
    assert rows[0]["properties"]["content_type"] == "text/plain"
    assert rows[0]["death"] == {
        "queue": graveyard.work,
        "reason": "rejected",
        "exchange": "amq.topic",
        "routing_key": "jobs.paint",
        "count": 1,
        "replays": 0,
    }
    assert graveyard.channel.count(graveyard.dead) == 3
    second = peeked(api, graveyard.dead, after=rows[0]["id"], count=1)
    assert [row["id"] for row in second] == [rows[1]["id"]]
    assert peeked(api, graveyard.dead, body_bytes=2)[0]["payload"] == "on"
    message = graveyard.channel.get(graveyard.dead)
    assert not message.redelivered


def test_all_of_them_go_back_to_the_queue_they_died_in_and_are_counted(api, graveyard):
    graveyard.bury([b"a", b"b", b"c"])
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert (answer.status, answer.json) == (200, {"replayed": 3, "left": 0})
    assert graveyard.channel.count(graveyard.dead) == 0
    content = graveyard.channel.get(graveyard.work)
    assert content.body == b"a"
    assert (content.method.exchange, content.method.routing_key) == ("amq.topic", "jobs.paint")
    assert content.properties.headers["x-replay-count"] == 1
    assert not content.redelivered
    graveyard.channel.reject(content.delivery_tag, requeue=False)
    eventually(lambda: graveyard.channel.count(graveyard.dead) == 1, "another death")
    [row] = peeked(api, graveyard.dead)
    assert (row["death"]["replays"], row["death"]["count"]) == (1, 2)
    api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"ids": [row["id"]]})
    again = [graveyard.channel.get(graveyard.work) for _ in range(3)]
    assert [content.body for content in again] == [b"b", b"c", b"a"]
    assert again[2].properties.headers["x-replay-count"] == 2


def test_selected_ones_are_replayed_and_the_rest_stays_in_order(api, graveyard):
    graveyard.bury([b"%d" % number for number in range(6)])
    ids = [row["id"] for row in peeked(api, graveyard.dead)]
    body = {"ids": [ids[4], ids[1], ids[1], 10**9]}
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body=body)
    assert answer.json == {"replayed": 2, "left": 1}
    assert drain(graveyard.channel, graveyard.work) == [b"1", b"4"]
    assert drain(graveyard.channel, graveyard.dead) == [b"0", b"2", b"3", b"5"]


def test_what_cannot_go_back_stays(scene, api, graveyard):
    graveyard.bury([b"orphan"])
    graveyard.confirming.publish("", graveyard.dead, b"no dead letter")
    work = graveyard.work
    graveyard.channel.rpc(Queue.Delete(queue=work))
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert answer.json == {"replayed": 0, "left": 2}
    left = [graveyard.channel.get(graveyard.dead) for _ in range(2)]
    assert [content.body for content in left] == [b"orphan", b"no dead letter"]
    assert not any(content.redelivered for content in left)


def forged(queue, key="jobs.paint"):
    death = {"queue": queue, "reason": "rejected", "exchange": "amq.topic", "routing-keys": [key]}
    return {"x-death": [{**death, "count": 3}], "x-first-death-queue": queue}


def test_deaths_that_a_client_tells_of_do_not_steer_a_replay(scene, api, graveyard):
    """Not even to a queue whose dead letters go here; the header itself stays as it was sent."""
    for queue in (graveyard.work, scene.queue(graveyard.channel)):
        graveyard.confirming.publish("", graveyard.dead, b"forged", headers=forged(queue))
    assert [row["death"] for row in peeked(api, graveyard.dead)] == [None, None]
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert answer.json == {"replayed": 0, "left": 2}
    assert graveyard.channel.count(graveyard.work) == 0
    content = graveyard.channel.get(graveyard.dead)
    assert content.properties.headers["x-death"][0]["count"] == 3
    assert content.properties.headers["x-first-death-queue"] == graveyard.work


def test_a_real_death_counts_on_from_what_a_client_sent_but_goes_by_the_truth(api, graveyard):
    graveyard.bury([b"x"], headers=forged(graveyard.work, key="made up"))
    [row] = peeked(api, graveyard.dead)
    assert (row["death"]["count"], row["death"]["routing_key"]) == (4, "jobs.paint")
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert answer.json == {"replayed": 1, "left": 0}
    assert graveyard.channel.get(graveyard.work).method.routing_key == "jobs.paint"


def test_a_letter_goes_back_only_where_dead_letters_really_come_from(api, graveyard):
    graveyard.bury([b"x"])
    graveyard.channel.rpc(Queue.Delete(queue=graveyard.work))
    graveyard.channel.declare_queue(graveyard.work)  # another one, which has no dead letters
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert answer.json == {"replayed": 0, "left": 1}
    graveyard.channel.rpc(Queue.Delete(queue=graveyard.work))


def test_what_a_full_queue_refuses_stays(scene, api, kind):
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    graveyard = Graveyard(scene, kind, **limits)
    graveyard.bury([b"a", b"b", b"c"])
    answer = api.call("POST", "dlq", "/", graveyard.dead, "replay", body={"all": True})
    assert answer.json == {"replayed": 1, "left": 2}
    assert drain(graveyard.channel, graveyard.work) == [b"a"]
    assert drain(graveyard.channel, graveyard.dead) == [b"b", b"c"]


def test_messages_are_dropped_for_good(api, graveyard):
    graveyard.bury([b"a", b"b", b"c"])
    ids = [row["id"] for row in peeked(api, graveyard.dead)]
    answer = api.call("POST", "dlq", "/", graveyard.dead, "drop", body={"ids": ids[:2]})
    assert answer.json == {"dropped": 2, "left": 0}
    assert [row["payload"] for row in peeked(api, graveyard.dead)] == ["c"]
    answer = api.call("POST", "dlq", "/", graveyard.dead, "drop", body={"all": True})
    assert answer.json == {"dropped": 1, "left": 0}
    assert graveyard.channel.count(graveyard.dead) == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (["dlq", "/", "no such queue", "replay"], {"all": True}, 404),
        (["dlq", "no such vhost", "q", "drop"], {"all": True}, 404),
        (["dlq", "/", "{dead}", "replay"], {}, 400),
        (["dlq", "/", "{dead}", "replay"], {"ids": "all"}, 400),
        (["dlq", "/", "{dead}", "replay"], {"ids": [True]}, 400),
        (["dlq", "/", "{dead}", "drop"], {"ids": [-1]}, 400),
    ],
)
def test_bad_requests_are_told_and_change_nothing(scene, api, path, body, status):
    graveyard = Graveyard(scene, TYPES["transient"])
    graveyard.bury([b"a"])
    path = [part.format(dead=graveyard.dead) for part in path]
    answer = api.call("POST", *path, body=body)
    assert answer.status == status
    assert answer.json["reason"]
    assert graveyard.channel.count(graveyard.dead) == 1


def test_long_queues_that_are_mostly_on_disk_are_replayed_whole(tmp_path):
    """Restarted, so that nothing of them is in memory."""
    life = Life(tmp_path)
    try:
        channel, confirming = life.channel(), life.confirming()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.declare_queue("work", durable=True, arguments={**arguments, "x-message-ttl": 0})
        channel.declare_queue("dead", durable=True)
        confirming.publish_all("work", [b"%d" % number for number in range(3000)])
        eventually(lambda: channel.count("dead") == 3000, "dead letters")
        confirming.barrier()  # else what died comes back, and dies again
        life.restart("kill")
        api = Api(life.process.host, life.process.http_port)
        ids = [row["id"] for row in api.call("GET", "dlq", "/", "dead", query="count=1000").json]
        assert len(ids) > 1
        drop = {"ids": [ids[-1], 2999]}
        assert api.call("POST", "dlq", "/", "dead", "drop", body=drop).json["dropped"] == 2
        channel = life.channel()
        assert channel.count("dead") == 2998
        channel.rpc(Queue.Delete(queue="work"))
        channel.declare_queue("work", durable=True, arguments=arguments)
        answer = api.call("POST", "dlq", "/", "dead", "replay", body={"all": True})
        assert answer.json == {"replayed": 2998, "left": 0}
        assert channel.count("dead") == 0
        gone = {ids.index(ids[-1]), 2999}
        expected = [b"%d" % number for number in range(3000) if number not in gone]
        assert drain(channel, "work") == expected
        life.restart("kill")
        assert life.channel().count("dead") == 0
    finally:
        life.end()


def test_the_command_does_the_same(broker, scene):
    graveyard = Graveyard(scene, TYPES["quorum"])
    graveyard.bury([b"[bold]a", b"b", b"c"])
    env = {"LEVERET_URL": broker.http_url("")}

    def dlq(*arguments):
        result = leveret("dlq", *arguments, env=env)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    assert graveyard.dead in dlq("list")
    shown = dlq("peek", graveyard.dead)
    assert "[bold]a" in shown
    assert graveyard.work in shown
    ids = [str(row["id"]) for row in json.loads(dlq("peek", graveyard.dead, "--json"))]
    assert dlq("replay", graveyard.dead, ids[0]) == (
        f"replayed 1, left 0 in queue {graveyard.dead!r}\n"
    )
    assert dlq("drop", graveyard.dead, ids[1]) == f"dropped 1 from queue {graveyard.dead!r}\n"
    assert json.loads(dlq("replay", graveyard.dead, "--all", "--json")) == {
        "replayed": 1,
        "left": 0,
    }
    assert drain(graveyard.channel, graveyard.work) == [b"[bold]a", b"c"]
    refused = leveret("dlq", "replay", graveyard.dead, env=env)
    assert refused.returncode == 2
    assert "--all" in refused.stderr
