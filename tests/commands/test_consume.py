"""`leveret consume` and `leveret tail`: what is shown, and what becomes of it then."""

import json
import signal

import pytest
from pamqp.commands import Queue

from tests.support.scene import Scene
from tests.support.streams import declare_stream, fill, numbers
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def test_as_many_as_asked_for_are_taken_and_the_others_never_touched(leveret, filled, channel):
    queue = filled(*numbers(300))
    told = leveret("consume", queue, "--count", "120", "--prefetch", "50")
    assert told.code == 0
    assert told.out.split() == [str(number) for number in range(120)]
    assert channel.count(queue) == 180
    message = channel.get(queue)
    assert (message.body, message.redelivered) == (b"120", False)


def test_it_ends_when_nothing_comes(leveret, queue):
    assert leveret("consume", queue, "--timeout", "0.2") == (0, "", "")


def test_fewer_than_asked_for_is_an_error(leveret, queue):
    told = leveret("consume", queue, "--count", "3", "--timeout", "0.2")
    told.fails(1, "0 of 3 messages came, and no more for 0.2 s")


def test_raw_bodies_have_nothing_in_between(start, filled):
    queue = filled(b"\x00\xff", b"", b"\x1b[1m")
    command = start("consume", queue, "--raw", "--count", "3")
    assert command.process.communicate(timeout=60)[0] == b"\x00\xff\x1b[1m"


def test_json_lines_can_be_published_again(start, leveret, scene, channel, filled):
    queue = filled(b"\xff", b"text", headers={"a": 1, "b": [True, None]}, message_id="9")
    lines = leveret("consume", queue, "--json", "--count", "2").out
    first = json.loads(lines.splitlines()[0])
    assert first == {
        "exchange": "",
        "routing_key": queue,
        "redelivered": False,
        "properties": {"headers": {"a": 1, "b": [True, None]}, "message_id": "9"},
        "payload": "/w==",
        "payload_encoding": "base64",
        "payload_bytes": 1,
    }
    other = scene.queue(channel)
    assert start("publish", other, "--json-lines").end(lines.encode()).code == 0
    message = channel.get(other)
    assert message.body == b"\xff"
    assert message.properties.headers == {"a": 1, "b": [True, None]}
    assert channel.get(other).body == b"text"


def test_messages_can_be_put_back(leveret, filled, channel):
    queue = filled(*numbers(5))
    told = leveret("consume", queue, "--requeue", "--count", "3")
    assert (told.code, told.out) == (0, "0\n1\n2\n")
    eventually(lambda: channel.count(queue) == 5, "all messages")
    assert channel.get_all(queue) == numbers(5)


def test_rejected_messages_go_to_the_dead_letters(leveret, scene, channel):
    dead = scene.queue(channel)
    there = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = scene.queue(channel, arguments=there)
    fill(scene, queue, [b"bad"])
    assert leveret("consume", queue, "--reject", "--count", "1").code == 0
    eventually(lambda: channel.count(dead) == 1, "the dead letter")


def test_without_acks_the_broker_forgets_on_sending(start, api, filled):
    queue = filled(*numbers(20))
    command = start("consume", queue, "--no-ack")
    assert [int(command.process.stdout.readline()) for _ in range(20)] == list(range(20))
    assert api.call("GET", "queues", "/", queue).json["messages"] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--raw", "--json"), "--raw"),
        (("--requeue",), "--count"),
        (("--requeue", "--count", "70000"), "65535"),
        (("--no-ack", "--count", "3"), "--no-ack"),
        (("--count", "0"), "--count"),
        (("--timeout", "0"), "--timeout"),
        (("--prefetch", "70000"), "--prefetch"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(leveret, options, expected):
    leveret("consume", "queue", *options).fails(2, expected)


def test_an_unknown_queue_is_told_with_what_to_do(leveret):
    leveret("consume", "nowhere").fails(1, "no queue 'nowhere'", "leveret queues")


def test_a_queue_that_is_deleted_ends_it(start, channel, filled):
    queue = filled(b"a")
    command = start("consume", queue)
    assert command.process.stdout.readline() == b"a\n"
    channel.rpc(Queue.Delete(queue=queue))
    command.end().fails(1, "the queue is gone")


def test_ctrl_c_is_the_usual_end_and_what_was_shown_is_acked(start, api, filled):
    queue = filled(b"a", b"b")
    command = start("consume", queue)
    assert [command.process.stdout.readline() for _ in "ab"] == [b"a\n", b"b\n"]

    def held() -> int:
        return api.call("GET", "queues", "/", queue).json["messages"]

    eventually(lambda: held() == 0, "the acks")
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (0, "", "")
    assert held() == 0


# Far beyond what a pipe holds, which is acked once it is in there.
LARGE = [b"%03d" % number + b"." * 20_000 for number in range(100)]
IN_PIPES = 10


def test_what_could_not_be_written_stays_in_the_queue(start, channel, filled):
    queue = filled(*LARGE)
    command = start("consume", queue)
    assert command.process.stdout.readline() == LARGE[0] + b"\n"
    command.process.stdout.close()
    assert command.process.wait(60) == 1
    assert command.process.stderr.read() == b""
    eventually(lambda: channel.count(queue) >= len(LARGE) - IN_PIPES, "the messages")


def test_ctrl_c_works_while_nobody_reads_the_output(start, channel, filled):
    queue = filled(*LARGE)
    command = start("consume", queue)
    eventually(lambda: channel.count(queue) == 0, "all messages to be on their way")
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(60) == 0
    eventually(lambda: channel.count(queue) >= len(LARGE) - IN_PIPES, "the messages")


def test_a_broker_that_dies_is_one_line(start, start_broker):
    broker = start_broker()
    scene = Scene(broker.amqp_url())
    queue = scene.queue(scene.channel())
    fill(scene, queue, [b"a"])
    command = start("consume", queue, env={"LEVERET_AMQP_URL": broker.amqp_url()})
    assert command.process.stdout.readline() == b"a\n"
    broker.kill()
    command.end().fails(1, "connection is lost")


def test_a_terminal_is_not_sent_what_could_play_tricks_on_it(start, filled, terminal):
    queue = filled(b"\x1b[2Jhi\tyou\nthere\x07")
    command = start("consume", queue, "--count", "1", stdout=terminal.end)
    assert terminal.shown() == "\ufffd[2Jhi\tyou\nthere\ufffd\n"
    assert command.process.wait(60) == 0


# Streams


@pytest.fixture
def stream(scene, channel) -> str:
    name = declare_stream(scene, channel)
    fill(scene, name, numbers(10))
    return name


@pytest.mark.parametrize(("offset", "first"), [("first", 0), ("last", 9), ("7", 7), ("1h", 0)])
def test_a_stream_is_read_from_where_one_likes(leveret, stream, offset, first):
    count = str(10 - first)
    told = leveret("consume", stream, "--offset", offset, "--count", count)
    assert told.out.split() == [str(number) for number in range(first, 10)]


def test_a_group_goes_on_where_it_was(leveret, stream):
    read = ["consume", stream, "--group", f"{stream}-group", "--offset", "first"]
    assert leveret(*read, "--count", "4").out.split() == ["0", "1", "2", "3"]
    told = leveret(*read, "--count", "6")
    assert told.out.split() == [str(number) for number in range(4, 10)]


def test_an_offset_that_is_none_is_told(leveret, stream):
    leveret("tail", stream, "--offset", "yesterday").fails(1, "x-stream-offset", "yesterday")


def test_a_tail_shows_places_and_keys_and_takes_nothing(leveret, scene, channel):
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(2), headers={"x-partition-key": "k"})
    for _ in range(2):
        told = leveret("tail", stream, "--offset", "first", "--count", "2")
        first, second = told.out.splitlines()
        assert first.endswith(":0 key=k 0")
        assert second.endswith(":1 key=k 1")


def test_a_tail_can_be_kept_to_a_partition(leveret, scene, channel):
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(4))
    options = ["--offset", "first", "--count", "2", "--partition", "1", "--json"]
    records = [json.loads(line) for line in leveret("tail", stream, *options).out.splitlines()]
    found = [record["properties"]["headers"]["x-stream-partition"] for record in records]
    assert found == [1, 1]


def test_a_tail_follows_until_ctrl_c(start, scene, stream):
    command = start("tail", stream, "--offset", "last")
    assert command.process.stdout.readline() == b"0:9 9\n"
    fill(scene, stream, [b"news"])
    assert command.process.stdout.readline() == b"0:10 news\n"
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (0, "", "")


def test_a_tail_of_a_queue_that_is_no_stream_gives_back_what_it_got(leveret, filled, channel):
    queue = filled(b"a")
    leveret("tail", queue).fails(1, "is not a stream", "leveret get", "leveret consume")
    eventually(lambda: channel.count(queue) == 1, "the message")


def test_a_tail_of_an_exchange_shows_copies(start, scene, channel):
    exchange = scene.exchange(channel, "topic")
    queue = scene.bound_queue(channel, exchange, "#")
    tail = ["tail", "--exchange", exchange, "--routing-key", "a.*", "--count", "2"]
    command = start(*tail)
    body = 0

    def shown() -> bool:
        """The tail is there once it shows something; so we go on until it has ended."""
        nonlocal body
        body += 1
        channel.publish(exchange, "a.b", b"%d" % body)
        channel.publish(exchange, "c.d", b"other")
        channel.count(queue)
        return command.process.poll() is not None

    eventually(shown, "two copies")
    told = command.end()
    assert told.code == 0
    lines = told.out.splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == [f"{exchange} a.b"] * 2
    assert channel.count(queue) == 2 * body


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "STREAM"),
        (("s", "--exchange", "x"), "STREAM"),
        (("s", "--routing-key", "k"), "--exchange"),
        (("--exchange", "x", "--offset", "first"), "STREAM"),
    ],
)
def test_a_mistake_with_tail_is_one_line_and_exit_code_2(leveret, arguments, expected):
    leveret("tail", *arguments).fails(2, expected)


def test_a_pipe_of_commands_moves_messages(start, scene, channel, filled):
    queue = filled(*numbers(500))
    other = scene.queue(channel)
    source = start("consume", queue, "--json", "--count", "500")
    sink = start("publish", other, "--json-lines", stdin=source.process.stdout)
    source.process.stdout.close()
    assert sink.process.wait(60) == 0
    assert source.process.wait(60) == 0
    assert channel.count(queue) == 0
    assert channel.get_all(other) == numbers(500)
