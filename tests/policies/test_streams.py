"""Policies for streams: what they may set, whose word counts, and that it holds at once."""

import pytest

from broker.policies import InvalidPolicyError, parse_policy
from broker.vhost import VHost
from tests.queues.fakes import FakeContext

HOUR_MS = 3_600_000
ME = object()


class Scene:
    def __init__(self):
        self.vhost = VHost("/", FakeContext())

    def declare(self, name="s", **arguments):
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declare_queue(
            name,
            durable=True,
            auto_delete=False,
            owner=None,
            arguments={"x-queue-type": "stream", **given},
            user_of=ME,
        )

    def put(self, definition, *, kind="policy", apply_to="all"):
        body = {"pattern": "", "definition": definition, "apply-to": apply_to}
        self.vhost.policies.put(kind, parse_policy("p", body, kind=kind))


@pytest.fixture
def scene():
    return Scene()


def test_a_policy_sets_what_a_stream_keeps_and_its_end_takes_that_back(scene):
    stream = scene.declare(partitions=2)
    before = stream.options
    definition = {"max-age": "1h", "max-length-bytes": 2000, "stream-max-segment-size-bytes": 500}
    scene.put(definition, apply_to="streams")
    storage = stream.options.storage
    assert (storage.max_age_ms, storage.max_bytes) == (HOUR_MS, 1000)
    assert storage.segment_bytes == 500
    assert (stream.policy, stream.options.partitions) == ("p", 2)
    scene.vhost.policies.remove("policy", "p")
    assert (stream.options, stream.policy) == (before, None)


def test_a_stream_that_is_declared_later_has_it_too(scene):
    scene.put({"max-age": "1h"})
    assert scene.declare().options.storage.max_age_ms == HOUR_MS


def test_a_policy_says_whose_acks_are_needed(scene):
    stream, strict = scene.declare(), scene.declare("strict", acks="all")
    scene.put({"acks": "1"}, apply_to="streams")
    assert stream.options.storage.leader_acks
    assert not strict.options.storage.leader_acks


def test_of_two_ages_and_two_sizes_the_smaller_counts(scene):
    scene.put({"max-age": "2h", "max-length-bytes": 10})
    short = scene.declare("short", max_age="60m", max_length_bytes=5)
    long = scene.declare("long", max_age="1Y", max_length_bytes=50)
    assert (short.options.storage.max_age_ms, short.options.storage.max_bytes) == (HOUR_MS, 5)
    assert (long.options.storage.max_age_ms, long.options.storage.max_bytes) == (2 * HOUR_MS, 10)


def test_an_operator_caps_the_size(scene):
    scene.put({"max-length-bytes": 10}, kind="operator-policy")
    assert scene.declare(max_length_bytes=100).options.storage.max_bytes == 10


def test_what_is_for_other_queues_does_not_concern_a_stream(scene):
    stream = scene.declare()
    before = stream.options
    scene.put({"message-ttl": 1, "max-length": 1, "dead-letter-exchange": "x"})
    assert (stream.options, stream.policy) == (before, "p")


def test_what_is_for_streams_does_not_concern_other_queues(scene):
    queue = scene.vhost.declare_queue(
        "q", durable=True, auto_delete=False, owner=None, arguments={}, user_of=ME
    )
    before = queue.options
    scene.put({"max-age": "1h", "stream-max-segment-size-bytes": 5})
    assert (queue.options, queue.policy) == (before, "p")


@pytest.mark.parametrize(
    "definition",
    [{"max-age": "soon"}, {"max-age": 5}, {"stream-max-segment-size-bytes": 0}, {"partitions": 2}],
    ids=str,
)
def test_a_policy_without_meaning_is_refused(definition):
    with pytest.raises(InvalidPolicyError, match=next(iter(definition))):
        parse_policy("p", {"pattern": "", "definition": definition}, kind="policy")
