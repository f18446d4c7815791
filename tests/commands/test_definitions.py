"""`leveret queues`, `exchanges`, `bindings`, `purge`, `get`: what there is, made, shown, gone."""

import json

import pytest

from tests.support.streams import declare_stream, numbers

pytestmark = pytest.mark.leveret_only


def rows(told) -> list[dict]:
    assert told.code == 0, told
    return json.loads(told.out)


def named(told) -> list[str]:
    return [row["name"] for row in rows(told)]


@pytest.mark.parametrize("words", [("queues",), ("queues", "--json"), ("get", "q", "--json")])
def test_nobody_who_reads_is_a_quiet_end(start, channel, scene, words):
    if words[0] == "get":
        words = ("get", scene.queue(channel), "--json")
    command = start(*words)
    command.process.stdout.close()
    assert command.process.wait(60) == 1
    assert command.process.stderr.read() == b""


# Queues


def test_a_queue_is_declared_shown_and_deleted(leveret, scene):
    name = scene.queue_name()
    told = leveret("queues", "declare", name, "--type", "classic", "--argument", "x-max-length=5")
    assert told == (0, f"queue '{name}' is there: 0 messages, 0 consumers\n", "")
    (row,) = rows(leveret("queues", "--filter", f"^{name}$", "--json"))
    assert (row["type"], row["durable"]) == ("classic", True)
    assert row["arguments"] == {"x-max-length": 5, "x-queue-type": "classic"}
    assert leveret("publish", name, "x").code == 0
    told = leveret("queues", "delete", name, "--yes")
    assert told == (0, f"deleted '{name}' with 1 message\n", "")
    assert rows(leveret("queues", "--filter", f"^{name}$", "--json")) == []


def test_declaring_tells_what_there_is_and_what_differs(leveret, filled):
    queue = filled(b"a", b"b")
    told = leveret("queues", "declare", queue, "--json")
    assert rows(told) == {"name": queue, "messages": 2, "consumers": 0}
    leveret("queues", "declare", queue, "--transient").fails(1, "406", "durable")


def test_the_list_is_for_people_too(leveret, filled):
    queue = filled(b"a")
    told = leveret("queues", "list", "--vhost", "/", "--filter", queue)
    assert told.code == 0
    heading, line = (told.out.splitlines()[number] for number in (1, 3))
    assert [cell.strip() for cell in heading.split("┃")[1:-1]] == [
        "queue",
        "type",
        "features",
        "ready",
        "unacked",
        "consumers",
        "policy",
        "state",
    ]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == [queue, "quorum", "durable", "1", "0", "0", "", "running"]
    assert "\x1b" not in told.out
    assert leveret("queues", "--filter", "no such name").out == "no queue is there\n"


def test_thousands_of_queues_are_listed_in_order_and_in_part(leveret, scene, channel):
    prefix = scene.queue_name()
    names = [f"{prefix}-{number:04d}" for number in range(2000)]
    for name in names:
        channel.declare_queue(name, exclusive=True)
    busiest = names[777]
    channel.publish_all(busiest, numbers(3))
    channel.settle(busiest)
    mine = ["queues", "--json", "--filter", f"^{prefix}-"]
    assert named(leveret(*mine)) == names
    assert named(leveret(*mine, "--reverse", "--limit", "3")) == names[:-4:-1]
    assert named(leveret(*mine, "--sort", "ready", "--reverse", "--limit", "1")) == [busiest]
    table = leveret("queues", "--filter", f"^{prefix}-")
    assert sum(prefix in line for line in table.out.splitlines()) == 2000
    channel.conn.close()


def test_lists_can_be_kept_to_a_type_and_a_vhost(leveret, scene, channel, queue):
    stream = declare_stream(scene, channel)
    both = ["queues", "--json", "--filter", f"^({queue}|{stream})$"]
    assert set(named(leveret(*both))) == {queue, stream}
    assert named(leveret(*both, "--type", "stream")) == [stream]
    assert set(named(leveret(*both, "--vhost", "/"))) == {queue, stream}
    leveret("queues", "--vhost", "nowhere").fails(1, "nowhere")


def test_a_queue_is_described_with_its_bindings(leveret, channel, queue):
    channel.bind(queue, "amq.topic", "a.#")
    found = rows(leveret("queues", "describe", queue, "--json"))
    assert (found["name"], found["type"]) == (queue, "quorum")
    assert [(row["source"], row["routing_key"]) for row in found["bindings"]] == [
        ("", queue),
        ("amq.topic", "a.#"),
    ]
    told = leveret("queues", "describe", queue)
    assert told.code == 0
    assert "amq.topic" in told.out


@pytest.mark.parametrize("what", ["queue", "exchange"])
def test_what_is_not_there_cannot_be_described(leveret, what):
    told = leveret(f"{what}s", "describe", "nowhere")
    told.fails(1, f"no {what} 'nowhere' in vhost '/'", f"leveret {what}s")
    unknown = leveret(f"{what}s", "describe", "x", "--vhost", "no")
    unknown.fails(1, "vhost 'no'")


def test_what_is_not_there_or_in_use_is_not_deleted(leveret, filled, channel):
    queue = filled(b"a")
    leveret("queues", "delete", "nowhere", "--yes").fails(1, "no queue 'nowhere'")
    leveret("queues", "delete", queue, "nowhere", "--yes").fails(1, "no queue 'nowhere'")
    assert channel.count(queue) == 1
    told = leveret("queues", "delete", queue, "--if-empty", "--yes")
    told.fails(1, "not empty")
    assert channel.count(queue) == 1


# Asking first


def test_nothing_is_lost_where_nobody_can_be_asked(leveret, filled, channel):
    queue = filled(b"a", b"b")
    leveret("purge", queue).fails(2, "purge", queue, "2 messages", "--yes")
    leveret("queues", "delete", queue).fails(2, "delete", queue, "--yes")
    assert channel.count(queue) == 2


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"y\n", 0, 0)])
def test_somebody_at_a_terminal_is_asked(start, filled, channel, terminal, answer, code, left):
    queue = filled(b"a", b"b")
    command = start("purge", queue, stdin=terminal.end)
    terminal.type(answer)
    assert command.process.wait(60) == code
    told = command.process.stderr.read().decode()
    assert f"purge '{queue}' with 2 messages? [y/N]" in told
    assert ("nothing was done" in told) == bool(left)
    assert channel.count(queue) == left


def test_purging_tells_how_many_there_were(leveret, filled, channel):
    queue = filled(b"a", b"b")
    assert rows(leveret("purge", queue, "--yes", "--json")) == [{"name": queue, "messages": 2}]
    assert leveret("purge", queue, "--yes").out == f"purged '{queue}' with 0 messages\n"


def test_a_stream_is_not_purged(leveret, scene, channel):
    leveret("purge", declare_stream(scene, channel), "--yes").fails(1, "540", "retention")


# Exchanges and bindings


def test_an_exchange_is_declared_shown_and_deleted(leveret, scene):
    name = scene.exchange_name()
    told = leveret("exchanges", "declare", name, "--type", "topic", "--internal")
    assert told == (0, f"exchange '{name}' is there\n", "")
    leveret("exchanges", "declare", name).fails(1, "406", "topic")
    leveret("exchanges", "declare", f"{name}2", "--type", "odd").fails(1, "odd")
    mine = ["exchanges", "--filter", f"^{name}$", "--json"]
    (row,) = rows(leveret(*mine))
    assert (row["type"], row["internal"], row["durable"]) == ("topic", True, True)
    leveret("exchanges", "delete", name).fails(2, "--yes")
    assert rows(leveret("exchanges", "delete", name, "--yes", "--json")) == [{"name": name}]
    assert rows(leveret(*mine)) == []
    leveret("exchanges", "delete", name, "--yes").fails(1, "404", name)


def test_bindings_are_made_shown_and_taken_away(leveret, scene, channel, queue):
    source = scene.exchange(channel, "topic")
    other = scene.exchange(channel, "fanout")
    to_queue = [source, queue, "--routing-key", "a.*"]
    to_exchange = [source, other, "--to", "exchange", "--routing-key", "b"]
    told = leveret("bindings", "declare", *to_queue)
    assert told == (0, f"queue '{queue}' is bound to '{source}' by 'a.*'\n", "")
    assert leveret("bindings", "declare", *to_exchange, "--json").code == 0
    found = rows(leveret("bindings", "--source", source, "--json"))
    kinds = [(row["destination_type"], row["routing_key"]) for row in found]
    assert sorted(kinds) == [("exchange", "b"), ("queue", "a.*")]
    described = rows(leveret("exchanges", "describe", source, "--json"))
    assert len(described["bindings"]) == 2
    assert leveret("publish", "--exchange", source, "a.b", "x").code == 0
    assert leveret("bindings", "delete", *to_queue).code == 0
    leveret("publish", "--exchange", source, "a.b", "x").fails(3, source)
    assert len(rows(leveret("bindings", "--source", source, "--json"))) == 1


def test_bindings_of_the_default_exchange_are_shown_on_request(leveret, queue):
    mine = ["bindings", "--destination", queue, "--json"]
    assert rows(leveret(*mine)) == []
    (row,) = rows(leveret(*mine, "--default"))
    assert (row["source"], row["routing_key"]) == ("", queue)


def test_a_headers_binding_keeps_the_types_of_its_arguments(leveret, scene, channel, queue):
    source = scene.exchange(channel, "headers")
    wanted = ["--argument", "x-match=all", "--argument", "size=3"]
    assert leveret("bindings", "declare", source, queue, *wanted).code == 0
    send = ["publish", "--exchange", source, "", "x", "--header"]
    assert leveret(*send, "size=3").code == 0
    leveret(*send, 'size="3"').fails(3, "no queue takes")


@pytest.mark.parametrize("words", [("queues",), ("exchanges",), ("bindings",), ("get", "q")])
def test_a_node_that_is_not_there_or_refuses_is_one_line(leveret, words):
    leveret(*words, "--url", "http://127.0.0.1:1").fails(1, "127.0.0.1:1", "--url")
    leveret(*words, "--password", "wrong").fails(1, "not authorised", "--password")


def test_a_pattern_that_is_none_is_one_line(leveret):
    leveret("queues", "--filter", "(").fails(2, "--filter", "'('")


# Get


def test_looking_at_messages_leaves_them_as_they_are(leveret, filled, channel):
    queue = filled(*numbers(5), headers={"a": 1})
    for _ in range(2):
        found = rows(leveret("get", queue, "--count", "3", "--json"))
        assert [row["payload"] for row in found] == ["0", "1", "2"]
        assert all(row["properties"] == {"headers": {"a": 1}} for row in found)
    message = channel.get(queue)
    assert (message.body, message.redelivered) == (b"0", False)


def test_more_messages_than_a_node_gives_at_once_are_looked_at(leveret, filled):
    queue = filled(*numbers(1200))
    found = rows(leveret("get", queue, "--count", "1100", "--json"))
    assert [row["payload"] for row in found] == [str(number) for number in range(1100)]


def test_taking_messages_removes_them(leveret, filled, channel):
    queue = filled(*numbers(3))
    told = leveret("get", queue, "--take", "--count", "2", "--json")
    assert [row["payload"] for row in rows(told)] == ["0", "1"]
    assert channel.get_all(queue) == [b"2"]
    assert leveret("get", queue, "--take").out == f"nothing is ready in queue '{queue}'\n"


def test_messages_are_shown_in_a_table(leveret, filled):
    queue = filled(b"[bold]x[/bold]\x1b[1m", headers={"a": 1})
    told = leveret("get", queue)
    cells = [cell.strip() for cell in told.out.splitlines()[3].split("│")[1:-1]]
    assert cells == ["(default)", queue, "", "18", "a=1", "[bold]x[/bold]\ufffd[1m"]


def test_what_cannot_be_got_is_one_line(leveret, scene, channel):
    leveret("get", "nowhere").fails(1, "no queue 'nowhere'")
    leveret("get", "nowhere", "--take").fails(1, "no queue 'nowhere'")
    stream = declare_stream(scene, channel)
    leveret("get", stream).fails(1, "stream")
    leveret("get", stream, "--take").fails(1, "540", "leveret tail")
