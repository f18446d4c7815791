"""Policies survive: whatever was answered is there after kill -9 as after a stop."""

import pytest

from tests.support.admin import Api
from tests.support.frames import Basic
from tests.support.waiting import eventually

ENDINGS = [("kill",), ("stop",), ("stop", "kill")]
DEFINITION = {
    "max-length": 3,
    "dead-letter-exchange": "",
    "dead-letter-routing-key": "letters",
    "retry-backoff": 1.5,
    "ha-params": ["a", "b"],
    "queue-mode": "lazy",
}


def api_of(life):
    return Api(life.process.host, life.process.http_port)


@pytest.mark.parametrize("endings", ENDINGS, ids="-".join)
def test_policies_are_there_and_in_effect_after_a_restart(life, endings):
    api = api_of(life)
    channel = life.channel()
    channel.declare_queue("letters", durable=True)
    channel.declare_queue("q", durable=True)
    channel.declare_exchange("x", "direct", durable=True)
    life.confirming().publish_all("q", [b"1", b"2"])
    api.put_policy("kept", "^q", DEFINITION, priority=-7, **{"apply-to": "queues"})
    api.put_policy("alternate", "^x$", {"alternate-exchange": "amq.fanout"})
    api.put_policy("cap", "^later", {"max-length": 1}, kind="operator-policies")
    api.put_policy("gone", "", {"max-length": 1}, priority=100)
    assert channel.count("q") == 1
    api.delete_policy("gone")
    before = [api.call("GET", kind).json for kind in ("policies", "operator-policies")]
    life.restart(*endings)

    api, channel = api_of(life), life.channel()
    assert [api.call("GET", kind).json for kind in ("policies", "operator-policies")] == before
    assert [len(listed) for listed in before] == [2, 1]
    life.confirming().publish_all("q", [b"3", b"4", b"5"])
    eventually(lambda: channel.count("q") == 3, "the limit of the queue that was there")
    eventually(lambda: channel.count("letters") == 1, "a dead letter")
    channel.declare_queue("later")
    life.confirming().publish_all("later", [b"1", b"2"])
    eventually(lambda: channel.count("later") == 1, "the limit of a new queue")
    channel.declare_queue("unrouted")
    channel.bind("unrouted", "amq.fanout")
    channel.publish("x", "nowhere", b"", mandatory=True)
    channel.rpc(Basic.Qos())
    assert channel.count("unrouted") == 1


def test_what_was_deleted_or_changed_last_is_so_after_kill(life):
    for length in (1, 2, 3):
        api_of(life).put_policy("p", "^q", {"max-length": length})
        life.restart("kill")
        (shown,) = api_of(life).call("GET", "policies").json
        assert shown["definition"] == {"max-length": length}
    assert api_of(life).delete_policy("p").status == 204
    life.restart("kill")
    assert api_of(life).call("GET", "policies").json == []


def test_a_policy_may_not_stop_a_queue_from_coming_back(life):
    """What does not go with the queue is left out at a start as well."""
    channel = life.channel()
    channel.declare_queue("q", durable=True, arguments={"x-message-groups": True})
    life.confirming().publish_all("q", [b"1"])
    api_of(life).put_policy("p", "", {"max-priority": 5, "priority-aging-ms": 9, "max-length": 2})
    life.restart("kill", "stop")
    life.confirming().publish_all("q", [b"2", b"3"])
    channel = life.channel()
    eventually(lambda: channel.count("q") == 2, "the rest of the policy")
