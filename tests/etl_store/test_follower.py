"""Dead letters go from their streams to the store, each once, whoever copies and whatever dies."""

import subprocess
import sys
import threading

import pytest
from sqlalchemy.exc import OperationalError

from clients.streams import connect
from spark.etl import dead_letters, follower
from spark.etl.dead_letters import dlq_of
from spark.etl.follower import DeadLetterFollower
from spark.etl.letters_table import Selection, find
from tests.etl_store.letters import bury
from tests.support.frames import Queue
from tests.support.process import ROOT
from tests.support.streams import STREAM, declare_stream
from tests.support.waiting import eventually


def letters_of(store, **selection):
    with store.reading() as connection:
        return find(connection, Selection(**selection), limit=10_000)


@pytest.fixture
def client(amqp_url):
    with connect(amqp_url) as client:
        yield client


@pytest.fixture
def topic(scene, channel):
    """With a stream for its dead letters."""
    name = declare_stream(scene, channel, partitions=2)
    channel.declare_queue(dlq_of(name), durable=True, arguments={**STREAM, "x-partitions": 2})
    yield name
    channel.rpc(Queue.Delete(queue=dlq_of(name)))


@pytest.fixture
def following(amqp_url, store, topic):
    found = DeadLetterFollower(amqp_url, store, [topic])
    yield found
    found.close()


def test_a_letter_is_the_record_as_it_was_and_why_it_failed(client, store, topic, following):
    bury(client, topic, [41], own={"trace": "a", "raw": b"\xff", "n": 5}, replays="2")
    assert following.run_once() == 1
    (letter,) = letters_of(store)
    assert (letter.job, letter.topic, letter.partition, letter.offset) == ("orders", topic, 0, 41)
    assert (letter.error_type, letter.error_message) == ("DecodeError", "no JSON")
    assert (letter.raw_message, letter.key) == (b"raw 41", b"key 41")
    assert letter.headers == {"trace": "a", "raw": b"\xff", "n": "5"}
    assert (letter.message_ms, letter.replay_count) == (1_700_000_000_123, 2)


def test_every_letter_is_copied_once_over_many_runs(client, store, topic, following, amqp_url):
    bury(client, topic, range(30))
    assert following.run_once() == 30
    assert following.run_once() == 0
    bury(client, topic, range(30, 50))
    another = DeadLetterFollower(amqp_url, store, [topic, "no such topic"])
    assert another.run_once() == 20
    another.close()
    assert sorted(letter.offset for letter in letters_of(store)) == list(range(50))


def test_a_run_that_dies_has_saved_letters_and_position_together(
    client, store, topic, following, monkeypatch
):
    monkeypatch.setattr(follower, "LETTERS_AT_ONCE", 10)
    bury(client, topic, range(50))
    save, calls = store.save_checkpoint, []

    def fail_at_the_third(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OperationalError("the store", None, Exception("is gone"))
        return save(*arguments)

    monkeypatch.setattr(store, "save_checkpoint", fail_at_the_third)
    with pytest.raises(OperationalError):
        following.run_once()
    assert len(letters_of(store)) == 20
    assert following.run_once() == 30


def test_a_stream_that_was_declared_again_is_read_from_its_start(
    client, store, topic, following, channel
):
    bury(client, topic, range(20))
    assert following.run_once() == 20
    channel.rpc(Queue.Delete(queue=dlq_of(topic)))
    assert following.run_once() == 0
    channel.declare_queue(dlq_of(topic), durable=True, arguments={**STREAM, "x-partitions": 2})
    bury(client, topic, [100])
    assert following.run_once() == 1


def test_a_stream_that_was_declared_again_and_has_grown_past_what_was_copied(
    client, store, topic, following, channel
):
    """Its letters are others, though they are of the same records and at the same places."""
    bury(client, topic, [1, 2])
    assert following.run_once() == 2
    channel.rpc(Queue.Delete(queue=dlq_of(topic)))
    channel.declare_queue(dlq_of(topic), durable=True, arguments={**STREAM, "x-partitions": 2})
    bury(client, topic, [1, 2, 3, 4, 5])
    assert following.run_once() == 5
    assert following.run_once() == 0
    assert [letter.offset for letter in letters_of(store)].count(1) == 2


def test_a_record_that_fails_twice_has_two_letters(client, store, topic, following):
    bury(client, topic, [7], error="too large")
    bury(client, topic, [7], error="too old")
    assert following.run_once() == 2
    assert {letter.error_message for letter in letters_of(store)} == {"too large", "too old"}


def test_a_position_that_was_lost_copies_nothing_twice(client, store, topic, following):
    bury(client, topic, range(30))
    assert following.run_once() == 30
    store.forget_checkpoint(follower.NAME)
    bury(client, topic, [30])
    assert following.run_once() == 1
    assert len(letters_of(store)) == 31


@pytest.mark.parametrize(
    "changes",
    [
        {"job": None},
        {"offset": None},
        {"offset": "many"},
        {"offset": "9" * 5000},
        {"partition": str(2**31)},
        {"partition": "-1"},
    ],
)
def test_what_is_no_dead_letter_is_kept_as_a_letter_of_no_job(
    client, store, topic, following, changes
):
    bury(client, topic, [7], **changes)
    assert following.run_once() == 1
    (letter,) = letters_of(store)
    assert (letter.job, letter.error_type) == ("", dead_letters.STRANGER)
    assert (letter.topic, letter.offset, letter.raw_message) == (dlq_of(topic), 0, b"raw 7")


@pytest.mark.parametrize(
    "changes", [{"timestamp": "9" * 18}, {"replays": "\u00b2"}, {"error": None}]
)
def test_odd_details_do_not_keep_a_letter_out(client, store, topic, following, changes):
    bury(client, topic, [7], **changes)
    assert following.run_once() == 1
    assert letters_of(store)[0].offset == 7


FOLLOWER = """
import sys, threading
from spark.etl import follower
from spark.etl.store import Store
follower.LETTERS_AT_ONCE = 5
url, store, topic = sys.argv[1:]
following = follower.DeadLetterFollower(url, Store.open(store), [topic])
print("ready", flush=True)
while True:
    following.run_once()
"""


def test_followers_that_are_killed_copy_each_letter_once(
    client, store, store_url, topic, following, amqp_url
):
    command = [sys.executable, "-c", FOLLOWER, amqp_url, store_url, topic]
    for number in range(3):
        bury(client, topic, range(number * 300, number * 300 + 300))
        before = len(letters_of(store))
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"ready\n"
            eventually(lambda before=before: len(letters_of(store)) > before, "some letters")
        finally:
            process.kill()
            process.communicate()
    following.run_once()
    assert sorted(letter.offset for letter in letters_of(store)) == list(range(900))


def test_a_thread_follows_until_it_is_stopped_and_leaves_nothing(
    client, store, topic, following, monkeypatch
):
    stop = threading.Event()
    thread = threading.Thread(target=following.run, args=(stop, 0.01))
    thread.start()
    bury(client, topic, range(5))
    eventually(lambda: len(letters_of(store)) == 5, "letters")
    bury(client, topic, range(5, 9))
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert len(letters_of(store)) == 9
