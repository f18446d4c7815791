"""Lives that need a broker of their own: odd directories, many queues, awkward moments."""

import subprocess
import sys

import pytest

from tests.durability.life import drain
from tests.support.frames import Basic, Queue, Tx
from tests.support.process import ROOT
from tests.support.waiting import eventually


def start_and_fail(data_dir):
    """Run a broker that must not start: its exit code and what it said."""
    command = [sys.executable, "-m", "broker", "serve", "--amqp-port", "0", "--http-port", "0"]
    ended = subprocess.run(
        [*command, "--data-dir", str(data_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def test_a_second_broker_on_the_same_directory_refuses_in_one_line(life):
    code, said = start_and_fail(life.data_dir)
    assert code == 1
    assert said.count("\n") == 1
    assert said.startswith("leveret: cannot use data directory")
    assert f"in use by process {life.process.pid}" in said
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish("", "q", b"the first goes on")
    life.restart("kill")
    assert drain(life.channel(), "q") == [b"the first goes on"]


def test_foreign_files_in_the_directory_are_left_alone(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish("", "q", b"x")
    life.kill()
    junk = {
        "notes.txt": b"mine",
        ".hidden": b"\0" * 100,
        "wal-not-a-number": b"junk",
        "lost+found/file": b"deep",
    }
    for name, content in junk.items():
        path = life.data_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    life.start()
    assert drain(life.channel(), "q") == [b"x"]
    for name, content in junk.items():
        assert (life.data_dir / name).read_bytes() == content


def test_a_broker_killed_before_it_wrote_anything_starts_again(life):
    life.restart("kill", "kill", "stop")
    life.channel().declare_queue("q", durable=True)


def test_definitions_alone_survive_lives_without_messages(life):
    channel = life.channel()
    channel.declare_queue("q", durable=True)
    channel.bind("q", "amq.fanout")
    life.restart("kill", "stop", "stop", "kill")
    publisher = life.confirming()
    publisher.publish("amq.fanout", "", b"x")
    assert drain(publisher.channel, "q") == [b"x"]


def test_thousands_of_queues_survive(life):
    publishers = [life.confirming() for _ in range(20)]
    names = {f"many-{n}": publishers[n % len(publishers)] for n in range(1500)}
    for name, publisher in names.items():
        publisher.channel.send(Queue.Declare(queue=name, durable=True))
        publisher.channel.send(Queue.Bind(queue=name, exchange="amq.topic", routing_key="a"))
        publisher.send("", name, name.encode())
    for publisher in names.values():
        publisher.channel.reply_to(Queue.Declare(), timeout=30)
        publisher.channel.reply_to(Queue.Bind(queue="", exchange=""), timeout=30)
    for publisher in publishers:
        publisher.wait()
    life.restart("kill")
    publisher = life.confirming()
    publisher.publish("amq.topic", "a", b"to all")
    channel = publisher.channel
    for name in names:
        channel.send(Basic.Get(queue=name, no_ack=True))
        channel.send(Basic.Get(queue=name, no_ack=True))
    for name in names:
        bodies = [channel.expect(Basic.GetOk).body for _ in range(2)]
        assert bodies == [name.encode(), b"to all"]


def test_queues_deleted_while_their_messages_are_being_read_are_gone(life):
    publisher = life.confirming()
    names = [f"doomed-{number}" for number in range(200)]
    for name in names:
        publisher.channel.declare_queue(name, durable=True)
        publisher.send("", name, b"x" * 10_000)
    publisher.wait()
    life.restart("kill")
    channel = life.channel()
    for name in names:
        channel.send(Queue.Delete(queue=name))
    for _ in names:
        channel.reply_to(Queue.Delete(queue=""))
    life.process.assert_sound()
    life.restart("kill")
    assert life.channel().declare_queue(names[0], durable=True).message_count == 0


def test_a_purge_of_a_long_queue_is_complete(life):
    """One message an entry, more entries than are compacted at once."""
    publisher = life.confirming()
    publisher.channel.declare_queue("long", durable=True)
    for number in range(5000):
        publisher.send("", "long", b"%d" % number)
        if number % 50 == 0:
            publisher.wait()
    publisher.wait()
    assert publisher.channel.rpc(Queue.Purge(queue="long")).message_count == 5000
    publisher.publish("", "long", b"after")
    life.restart("kill")
    assert drain(life.channel(), "long") == [b"after"]


def test_what_was_delivered_in_a_second_life_is_redelivered_in_a_third(life):
    """That the first ended in good order says nothing about the second."""
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish_all("q", [b"1", b"2"])
    life.restart("stop")
    first = life.channel().get("q")
    assert (first.body, first.redelivered) == (b"1", False)
    life.restart("kill")
    again = life.channel().get("q")
    assert (again.body, again.redelivered) == (b"1", True)


def test_returned_and_then_left_alone_is_still_redelivered_after_a_stop(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish_all("q", [b"1", b"2"])
    channel = life.channel()
    channel.get("q")
    channel.get("q")
    life.restart("stop", "stop")
    publisher = life.confirming()
    publisher.publish("", "q", b"3")
    found = [publisher.channel.get("q") for _ in range(3)]
    assert [(c.body, c.redelivered) for c in found] == [(b"1", True), (b"2", True), (b"3", False)]


def test_a_queue_deleted_right_behind_a_commit_into_it_takes_nothing_down(life):
    """The commit's answer lets the channel go on, in the middle of applying the log."""
    channel = life.channel()
    channel.declare_queue("q", durable=True)
    channel.declare_queue("other", durable=True)
    channel.rpc(Tx.Select())
    for _ in range(20):
        channel.declare_queue("q", durable=True)
        for _ in range(5):
            channel.publish("", "q", b"x" * 400_000, delivery_mode=2)
            channel.publish("", "other", b"y", delivery_mode=2)
        channel.send(Tx.Commit())
        channel.send(Queue.Delete(queue="q"))
        channel.reply_to(Tx.Commit())
        channel.reply_to(Queue.Delete(queue="q"))
    life.process.assert_sound()
    life.restart("kill")
    assert drain(life.channel(), "other") == [b"y"] * 100


def test_a_backlog_of_large_messages_is_not_read_into_memory_at_once(life):
    psutil = pytest.importorskip("psutil")
    publisher = life.confirming()
    publisher.channel.declare_queue("large", durable=True)
    for number in range(40):
        publisher.publish("", "large", bytes([number]) * 4_000_000)
    life.restart("kill")
    channel = life.channel()
    assert channel.get("large").body[0] == 0
    resident = psutil.Process(life.process.pid).memory_info().rss
    assert resident < 150_000_000
    for number in range(1, 40):
        assert channel.get("large", no_ack=True).body == bytes([number]) * 4_000_000


def test_what_a_consumer_settles_while_it_drains_survives(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish_all("q", [b"%d" % n for n in range(3000)])
    life.restart("stop")
    channel = life.channel()
    channel.qos(100)
    channel.consume("q")
    for number in range(2500):
        delivery = channel.delivery()
        assert delivery.body == b"%d" % number
        if number % 10 == 9:
            channel.ack(delivery.delivery_tag, multiple=True)
    life.confirming().barrier()
    life.restart("kill")
    channel = life.channel()
    assert drain(channel, "q") == [b"%d" % n for n in range(2500, 3000)]
    eventually(lambda: channel.count("q") == 0, "an empty queue")
