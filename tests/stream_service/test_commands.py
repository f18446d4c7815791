"""Streams and groups over HTTP, and by `leveret stream`."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from broker.cli import run
from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from tests.shell.process import CLEAN_ENV
from tests.support.process import ROOT

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def command(broker, capsys, monkeypatch):
    """`leveret stream …` in this process, which is a second quicker each time."""
    monkeypatch.setenv("LEVERET_URL", broker.http_url(""))

    def stream(*arguments, code=0):
        capsys.readouterr()
        found = run(["stream", *arguments])
        output = capsys.readouterr()
        assert found == code, output
        return output.out if code == 0 else output.err

    return stream


@pytest.fixture
def filled(client, declare):
    """Two partitions, with 0 … 9 in one of them and a … c in the other."""
    stream = declare(partitions=2)
    with client.producer(stream) as producer:
        for number in range(10):
            producer.send(b"%d" % number, key=b"k", headers={"n": number}, partition=0)
        for value in (b"a", b"b", b"\xff"):
            producer.send(value, partition=1)
    return stream


def columns(table):
    """The cells of a table, row by row."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()[3:-1]]


def test_streams_are_listed_and_described(command, filled, api):
    rows = {row["name"]: row for row in json.loads(command("list", "--json"))}
    assert rows[filled]["partitions"] == 2
    assert rows[filled]["messages"] == 13
    assert rows[filled]["size_bytes"] > 0
    assert [filled, "2", "13"] in [row[:3] for row in columns(command("list"))]
    assert any(row["name"] == filled for row in api.call("GET", "streams").json)
    described = json.loads(command("describe", filled, "--json"))
    ends = [(row["first_offset"], row["next_offset"]) for row in described["partitions"]]
    assert ends == [(0, 10), (0, 3)]
    assert described["arguments"]["x-partitions"] == 2
    text = command("describe", filled)
    assert "x-partitions: 2" in text
    assert re.search(r"│ 1 +│ 0 +│ 3 +│ 3 +│", text)


def test_what_is_no_stream_is_told_so(command, scene, channel):
    queue = scene.queue(channel)
    assert "not a stream" in command("describe", queue, code=1)
    assert "no queue 'nowhere'" in command("tail", "nowhere", code=1)


def test_tail_prints_records_and_ends_with_the_count(command, filled):
    text = command("tail", filled, "--from", "first", "--count", "13")
    lines = text.splitlines()
    assert len(lines) == 13
    assert re.fullmatch(r"0:0 [-\d]+ [:.\d]+Z key=k 0", lines[0])
    records = [
        json.loads(line)
        for line in command(
            *("tail", filled, "--from", "@8", "--partition", "0", "--count", "2", "--json")
        ).splitlines()
    ]
    assert [(each["offset"], each["value"], each["headers"]) for each in records] == [
        (8, "8", {"n": 8}),
        (9, "9", {"n": 9}),
    ]
    last = json.loads(
        command("tail", filled, "--from", "last", "--partition", "1", "--count", "1", "--json")
    )
    assert (last["offset"], last["value"], last["value_encoding"]) == (2, "/w==", "base64")
    assert "no partition 7" in command("tail", filled, "--partition", "7", code=2)


def test_tail_goes_on_as_records_come_and_ends_with_ctrl_c(broker, client, filled):
    arguments = ["stream", "tail", filled, "--from", "last", "--partition", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "broker", *arguments],
        cwd=ROOT,
        env={**CLEAN_ENV, "LEVERET_URL": broker.http_url(""), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline().endswith("key=k 9\n")
            with client.producer(filled) as producer:
                producer.send(b"more", partition=0)
            assert process.stdout.readline().endswith(" more\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_page_of_records_says_where_to_go_on(api, filled):
    seen, following = [], ""
    for _ in range(20):
        answer = api.call(
            "GET", "streams", "/", filled, "records", query=f"count=4&from={following}"
        )
        found = answer.json
        seen += [(row["partition"], row["offset"]) for row in found["records"]]
        following = ",".join(f"{number}:{at}" for number, at in found["next"].items())
    assert sorted(seen) == [(0, n) for n in range(10)] + [(1, n) for n in range(3)]
    assert following == "0:10,1:3"


@pytest.mark.parametrize("query", ["from=7:0", "from=0", "from=0:x", "count=0", "wait_ms=99999999"])
def test_a_bad_question_for_records_is_refused(api, filled, query):
    answer = api.call("GET", "streams", "/", filled, "records", query=query)
    assert answer.status == 400
    assert answer.json["reason"]


def test_offsets_are_shown_at_places_and_times(command, filled):
    assert columns(command("offsets", filled)) == [["0", "10"], ["1", "3"]]
    assert columns(command("offsets", filled, "--at", "first")) == [["0", "0"], ["1", "0"]]
    later = str(int(time.time() * 1000) + 60_000)
    rows = json.loads(command("offsets", filled, "--at", later, "--json"))
    assert rows == [{"partition": 0, "offset": 10}, {"partition": 1, "offset": 3}]
    assert "neither" in command("offsets", filled, "--at", "noon", code=1)


def test_groups_are_reset_and_shown_with_their_lag(command, client, filled):
    group = f"group-of-{filled}"
    assert "goes on at 4" in command("reset", group, filled, "--offset", "4", "--partition", "0")
    assert columns(command("groups", group)) == [[filled, "0", "4", "10", "6", ""]]
    command("reset", group, filled, "--to", "last")
    rows = json.loads(command("groups", group, "--json"))["offsets"]
    assert [(row["number"], row["offset"], row["lag"]) for row in rows] == [(0, 9, 1), (1, 2, 1)]
    assert group in [row[0] for row in columns(command("groups"))]
    committed = client.committed(group)
    assert sorted(each.offset for each in committed.values()) == [2, 9]
    assert "either" in command("reset", group, filled, code=2)
    assert "no stream" in command("reset", group, "nowhere", "--to", "first", code=1)


def test_a_group_with_members_is_not_reset(command, client, filled):
    group = f"group-of-{filled}"
    with closing(client.group(group, [filled])):
        shown = json.loads(command("groups", group, "--json"))
        assert len(shown["members"]) == 1
        assert "members" in command("reset", group, filled, "--to", "first", code=1)


# Rows that wait for their transaction


@pytest.fixture
def stage(client):
    def stage(stream, producer, *values, partition=0, number=0):
        key = wire.Key(producer, 0, 7)
        chunk = encode_chunk([None] * len(values), values, [b""] * len(values), 1000)
        request = wire.Stage(key, stream, partition, "writer", number, chunk)
        return client.connection.ask(request, wire.Staged)

    return stage


def test_what_is_staged_is_listed_and_dropped(command, declare, stage, api):
    stream = declare(partitions=2)
    assert "nothing is staged" in command("staged", "list", stream)
    stage(stream, "killed", b"1", b"2", partition=1)
    stage(stream, "alive", b"3")
    rows = json.loads(command("staged", "list", stream, "--json"))
    assert [(row["partition"], row["user"], row["producer"], row["rows"]) for row in rows] == [
        (0, "guest", "alive", 1),
        (1, "guest", "killed", 2),
    ]
    assert ["1", "guest", "killed", "7", "2"] in [
        row[:5] for row in columns(command("staged", "list", stream))
    ]
    assert "is needed" in command("staged", "drop", stream, "--yes", code=2)
    assert "dropped 2 rows" in command("staged", "drop", stream, "--producer", "killed", "--yes")
    left = api.call("GET", "streams", "/", stream, "staged").json
    assert [row["producer"] for row in left] == ["alive"]
    assert "dropped 1 rows" in command("staged", "drop", stream, "--all", "--yes")
    assert api.call("GET", "streams", "/", stream, "staged").json == []
    mistyped = api.call("DELETE", "streams", "/", stream, "staged", query="producers=x")
    assert mistyped.status == 400


def test_whose_rows_are_in_the_way_is_told(command, declare, stage):
    stream = declare()
    large = bytes(8_000_000)
    for number in range(7):
        stage(stream, "killed", large, number=number)
    stage(stream, "rerun", large)
    with pytest.raises(RefusedError, match="in the way are rows of others") as refused:
        stage(stream, "rerun", large, number=1)
    assert refused.value.status == Status.STAGING_FULL
    assert "of producer 'killed' of user 'guest', untouched for" in refused.value.text
    assert "rerun" not in refused.value.text
    command("staged", "drop", stream, "--producer", "killed", "--yes")
    stage(stream, "rerun", large, number=1)


def test_who_alone_has_staged_too_much_is_not_told_to_wait(declare, stage):
    stream = declare()
    for number in range(8):
        stage(stream, "large", bytes(8_000_000), number=number)
    with pytest.raises(RefusedError, match=r"too much is staged$"):
        stage(stream, "large", bytes(8_000_000), number=8)
