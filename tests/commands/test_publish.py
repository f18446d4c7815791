"""`leveret publish`: what arrives, and what is said when it cannot."""

import json
import signal

import pytest

from tests.support.scene import Scene
from tests.support.streams import declare_stream, read
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def test_a_body_goes_to_the_queue_that_the_routing_key_names(leveret, channel, queue):
    told = leveret("publish", queue, "hällo")
    assert told == (0, "published 1 message, confirmed\n", "")
    message = channel.get(queue)
    assert message.body == "hällo".encode()
    assert message.properties.delivery_mode == 2


def test_headers_and_properties_arrive_with_their_types(leveret, channel, queue):
    headers = ["region=north", "tries=3", "ratio=0.5", "urgent=true", 'number="3"', "a=b=c"]
    given = [word for header in headers for word in ("--header", header)]
    more = ["--property", "content-type=text/plain", "--property", "priority=7", "--transient"]
    assert leveret("publish", queue, "x", *given, *more).code == 0
    properties = channel.get(queue).properties
    assert properties.headers == {
        "region": "north",
        "tries": 3,
        "ratio": 0.5,
        "urgent": True,
        "number": "3",
        "a": "b=c",
    }
    assert (properties.content_type, properties.priority) == ("text/plain", 7)
    assert properties.delivery_mode == 1


def test_files_are_messages_and_can_be_repeated(leveret, channel, queue, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"\x00\xff\n")
    two.write_bytes(b"")
    files = ["--file", str(one), "--file", str(two)]
    told = leveret("publish", queue, *files, "--count", "2", "--json")
    assert told.code == 0
    found = json.loads(told.out)
    assert found.pop("seconds") >= 0
    assert found == {"published": 4, "confirmed": 4, "bytes": 6}
    assert channel.get_all(queue) == [b"\x00\xff\n", b"", b"\x00\xff\n", b""]


def test_made_up_bodies_have_the_size_that_is_asked_for(leveret, channel, queue):
    assert leveret("publish", queue, "--size", "33", "--count", "3").code == 0
    assert [len(body) for body in channel.get_all(queue)] == [33, 33, 33]


def test_standard_input_as_a_whole_is_a_message(start, channel, queue):
    assert start("publish", queue).end(b"two\nlines\n").code == 0
    assert channel.get_all(queue) == [b"two\nlines\n"]


def test_each_line_is_a_message(start, channel, queue):
    lines = b"one\r\n\ntwo \xff\nlast"
    assert start("publish", queue, "--lines").end(lines).code == 0
    assert channel.get_all(queue) == [b"one", b"", b"two \xff", b"last"]


def test_a_line_that_is_long_stays_whole(start, channel, queue):
    long = b"x" * 300_000
    assert start("publish", queue, "--lines").end(long + b"\nshort\n").code == 0
    assert channel.get_all(queue) == [long, b"short"]


def test_lines_are_published_as_they_come_and_ctrl_c_tells_how_many(start, channel, queue):
    command = start("publish", queue, "--lines")
    for count in (1, 2):
        command.process.stdin.write(b"line\n")
        command.process.stdin.flush()
        eventually(lambda count=count: channel.count(queue) == count, "the line")
    command.process.send_signal(signal.SIGINT)
    command.process.wait(60)
    told = command.end()
    told.fails(130, "interrupted", "of 2 messages were confirmed")


def test_lines_with_keys_go_to_the_partitions_of_their_keys(start, scene, channel):
    stream = declare_stream(scene, channel, partitions=3)
    lines = b"".join(b"customer-%d\tvalue %d\n" % (n % 5, n) for n in range(20))
    assert start("publish", stream, "--lines", "--key-separator", "\t").end(lines).code == 0
    partitions: dict[str, set[int]] = {}
    for record in read(scene.channel(), stream, 20):
        key = record.headers["x-partition-key"]
        partitions.setdefault(key, set()).add(record.headers["x-stream-partition"])
        assert int(record.body.split()[1]) % 5 == int(key.removeprefix("customer-"))
    assert len(partitions) == 5
    assert all(len(found) == 1 for found in partitions.values())


def test_a_key_is_given_to_every_record(leveret, scene, channel):
    stream = declare_stream(scene, channel, partitions=3)
    assert leveret("publish", stream, "x", "--key", "k", "--count", "4").code == 0
    records = read(scene.channel(), stream, 4)
    assert len({record.headers["x-stream-partition"] for record in records}) == 1


def test_json_lines_have_addresses_properties_and_any_bytes(start, channel, queue):
    first = {"payload": "/w==", "payload_encoding": "base64", "routing_key": queue}
    first["properties"] = {"headers": {"a": [1, {"b": None}]}, "message_id": "7"}
    second = {"payload": "x", "exchange": "", "routing_key": queue, "redelivered": True}
    lines = f"{json.dumps(first)}\n\n{json.dumps(second)}\n".encode()
    assert start("publish", "--json-lines").end(lines).code == 0
    message = channel.get(queue)
    assert message.body == b"\xff"
    assert message.properties.headers == {"a": [1, {"b": None}]}
    assert (message.properties.message_id, message.properties.delivery_mode) == ("7", 2)
    assert channel.get(queue).body == b"x"


def test_the_command_line_counts_more_than_json_lines(start, channel, queue):
    line = {"payload": "x", "exchange": "amq.topic", "routing_key": "elsewhere"}
    line["properties"] = {"headers": {"a": 1, "b": 2}, "priority": 1}
    options = ["--exchange", "", "--header", "b=3", "--property", "priority=5"]
    told = start("publish", queue, "--json-lines", *options).end(json.dumps(line).encode())
    assert told.code == 0, told
    properties = channel.get(queue).properties
    assert (properties.headers, properties.priority) == ({"a": 1, "b": 3}, 5)


def test_a_line_that_is_wrong_is_named_and_those_before_it_are_safe(start, channel, queue):
    lines = b'{"payload": "1"}\n{"payload": "2"}\n{"payload": 3}\n{"payload": "4"}\n'
    told = start("publish", queue, "--json-lines").end(lines)
    told.fails(1, "standard input, line 3", "payload", "2 of 2 messages were confirmed")
    assert channel.get_all(queue) == [b"1", b"2"]


def test_a_line_without_a_key_is_named(start, queue):
    told = start("publish", queue, "--lines", "--key-separator", ":").end(b"a:1\nb\n")
    told.fails(1, "standard input, line 2", "':'")


def test_long_work_has_a_bar_on_a_terminal_and_nowhere_else(start, queue, terminal):
    work = ["publish", queue, "--size", "10", "--count", "3000"]
    on_terminal = start(*work, stderr=terminal.end)
    assert "publishing" in terminal.shown()
    said = "published 3000 messages, confirmed\n"
    assert on_terminal.end().out == said
    assert start(*work).end() == (0, said, "")


def test_a_message_that_no_queue_takes_is_an_error_of_its_own(leveret):
    told = leveret("publish", "no such queue", "x")
    told.fails(3, "no queue takes a message", "'no such queue'", "leveret bindings")
    assert leveret("publish", "no such queue", "x", "--no-mandatory").code == 0


def test_a_full_queue_is_an_error_of_its_own(leveret, scene, channel):
    limits = {"x-max-length": 2, "x-overflow": "reject-publish"}
    queue = scene.queue(channel, durable=True, arguments=limits)
    told = leveret("publish", queue, "x", "--count", "10", "--window", "1")
    told.fails(4, "refused", "of 3 messages were confirmed")
    assert channel.count(queue) == 2


def test_without_confirms_mistakes_still_come_to_light(leveret, channel, queue):
    told = leveret("publish", queue, "x", "--no-confirm")
    assert told == (0, "published 1 message, without confirms\n", "")
    eventually(lambda: channel.count(queue) == 1, "the message")
    leveret("publish", "--exchange", "nowhere", "k", "x", "--no-confirm").fails(1, "404")


def test_an_unknown_exchange_is_told_with_what_to_do(leveret):
    told = leveret("publish", "--exchange", "nowhere", "key", "x")
    told.fails(1, "no exchange 'nowhere'", "leveret exchanges")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--amqp-url", "amqp://127.0.0.1:1"), ("127.0.0.1:1", "--amqp-url")),
        (("--password", "wrong"), ("'guest'", "--password")),
        (("--user", "stranger"), ("'stranger'", "--user")),
        (("--vhost", "nowhere"), ("vhost", "nowhere", "--vhost")),
        (("--property", "priority=256"), ("priority", "256")),
        (("--property", f"message_id={'x' * 256}"), ("message_id", "255")),
        (("--exchange", "x" * 256), ("exchange", "255")),
        (("--header", f"big={2**70}"), ("message 1",)),
    ],
)
def test_what_cannot_be_is_one_line(leveret, options, expected):
    leveret("publish", "key", "x", *options).fails(1, *expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("key", "body", "--size", "3"), "BODY, --size"),
        (("key", "--lines", "--json-lines"), "--lines"),
        (("key", "--lines", "--count", "2"), "--count"),
        (("key", "x", "--key-separator", ":"), "--lines"),
        (("--size", "3"), "ROUTING_KEY"),
        (("key", "x", "--header", "novalue"), "NAME=VALUE"),
        (("key", "x", "--property", "nonsense=1"), "no property 'nonsense'"),
        (("key", "x", "--property", "priority=high"), "whole number"),
        (("key", "x", "--property", "headers=1"), "--header"),
        (("key", "x", "--window", "0"), "--window"),
        (("key", "x", "--rate", "0"), "--rate"),
        (("key", "x", "--amqp-url", "http://127.0.0.1"), "'http' is not a scheme"),
        (("key", "x", "--amqp-url", "amqp://me@h", "--user", "you"), "give only one"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(leveret, arguments, expected):
    leveret("publish", *arguments).fails(2, expected)


def test_a_file_that_is_not_there_is_one_line(leveret, tmp_path):
    missing = str(tmp_path / "missing")
    leveret("publish", "key", "--file", missing).fails(1, missing, "No such file")
    leveret("publish", "key", "--file", str(tmp_path)).fails(1, "directory")


def test_the_url_may_say_who_and_where(leveret, addresses, channel, queue):
    address = addresses["LEVERET_AMQP_URL"].removeprefix("amqp://")
    told = leveret("publish", queue, "x", "--amqp-url", f"amqp://guest:guest@{address}/%2F")
    assert told.code == 0
    wrong = leveret("publish", queue, "x", "--amqp-url", f"amqp://guest:wrong@{address}")
    wrong.fails(1, "--password")
    assert channel.count(queue) == 1


def test_a_broker_that_dies_is_one_line_that_says_what_is_known(start, start_broker):
    broker = start_broker()
    scene = Scene(broker.amqp_url())
    channel = scene.channel()
    queue = scene.queue(channel)
    command = start("publish", queue, "--lines", env={"LEVERET_AMQP_URL": broker.amqp_url()})
    command.process.stdin.write(b"line\n")
    command.process.stdin.flush()
    eventually(lambda: channel.count(queue) == 1, "the line")
    broker.kill()
    command.end(b"line\n").fails(1, "of", "messages were confirmed")
