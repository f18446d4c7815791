"""Dead letters of real pipelines as operators meet them: commands, the API and metrics."""

import json
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from broker.cli import leveret
from clients import cli
from clients.stream_errors import ConnectionLostError
from spark.etl import Pipeline, dead_letters, sinks
from spark.etl.dead_letters import dlq_of
from spark.etl.errors import PipelineError
from tests.etl.scene import PipelineScene, running
from tests.support.admin import Api
from tests.support.frames import Queue
from tests.support.process import BrokerProcess
from tests.support.streams import STREAM

assert cli  # it adds the commands

Etl = Callable[..., Any]
FILE = """
[pipeline]
name = "{name}"
broker = "{broker}"
http = "{http}"
checkpoint = "{name}"
store = "sqlite:///{directory}/etl.db"
[sources.orders]
topic = "{source}"
schema = "id bigint, cents bigint"
[[steps]]
name = "positive"
kind = "validate"
input = "orders"
check = {{ positive = "cents > 0" }}
"""
SMALL = """
[[steps]]
name = "small"
kind = "validate"
input = "orders"
check = { small = "id < 100" }
"""
STREAM_SINK = """
[[sinks]]
kind = "stream"
name = "{name}"
input = "{input}"
topic = "{topic}"
"""
PARQUET_SINK = """
[[sinks]]
kind = "parquet"
name = "{name}"
input = "{input}"
path = "{name}"
"""


class Shop:
    """Pipelines in files, with one store for all of them."""

    def __init__(self, etl: PipelineScene, broker: BrokerProcess, api: Api) -> None:
        self.etl = etl
        self.broker = broker
        self.api = api
        self.names: list[str] = []

    def file(self, name: str, source: str, *sinks: str) -> str:
        path = self.etl.directory / f"{name}.toml"
        head = FILE.format(
            name=name,
            broker=self.broker.amqp_url(),
            http=self.broker.http_url(""),
            directory=self.etl.directory,
            source=source,
        )
        steps = SMALL if any('input = "small"' in each for each in sinks) else ""
        path.write_text("".join([head, steps, *sinks]))
        self.names.append(name)
        return str(path)

    def run(self, file: str) -> None:
        self.etl.run(Pipeline.from_toml(file))

    def command(self, *arguments: str) -> Any:
        """What `leveret etl …` says, as JSON."""
        environment = {
            "LEVERET_ETL_STORE": f"sqlite:///{self.etl.directory}/etl.db",
            "LEVERET_AMQP_URL": self.broker.amqp_url(),
            "LEVERET_URL": self.broker.http_url(""),
        }
        result = CliRunner().invoke(leveret, ["etl", *arguments, "--json"], env=environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def metric(self, name: str) -> dict[str, float]:
        with urllib.request.urlopen(self.broker.http_url("/metrics"), timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {
                sample.labels["job"]: sample.value
                for family in families
                for sample in family.samples
                if sample.name == name
            }

    def clean_up(self) -> None:
        for row in self.api.call("GET", "etl", "jobs").json:
            if row["name"].partition(".")[0] in self.names:
                self.api.call("DELETE", "etl", "jobs", row["name"])


@pytest.fixture
def shop(etl: PipelineScene, broker: BrokerProcess, api: Api) -> Iterator[Shop]:
    found = Shop(etl, broker, api)
    yield found
    found.clean_up()


def stream_sink(name: str, step: str, topic: str) -> str:
    return STREAM_SINK.format(name=name, input=step, topic=topic)


def test_letters_are_counted_for_the_job_that_wrote_them(shop: Shop) -> None:
    etl = shop.etl
    source = etl.declare()
    etl.fill(source, [{"id": n, "cents": n - 2} for n in range(10)])
    etl.send(source, [(b"{", None)])
    parquet = PARQUET_SINK.format(name="files", input="small")
    etl.fill(source, [{"id": 1000, "cents": 1}])
    shop.run(shop.file("shop", source, stream_sink("paid", "positive", etl.target()), parquet))

    told = {"shop.paid": 4, "shop.dead-letters": 1, "shop.files": 0}
    rows = {row["name"]: row for row in shop.command("status")}
    assert {name: row["dead_letters"] for name, row in rows.items()} == told
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(told, "stopped")
    jobs = {row["name"]: row["dead_letters"] for row in shop.api.call("GET", "etl", "jobs").json}
    assert jobs.items() >= told.items()
    assert shop.metric("leveret_etl_dead_letters").items() >= told.items()

    listed = shop.command("dlq", "list", "--job", "shop.paid")
    kinds = [row["error_type"] for row in listed]
    assert sorted(kinds) == ["DecodeError", *["ValidationError"] * 3]
    (large,) = shop.command("dlq", "list", "--job", "shop.dead-letters")
    assert large["error_message"] == "check small failed: id < 100"
    decoded = shop.command("dlq", "list", "--error-type", "DecodeError")
    assert [row["value"] for row in decoded] == ["{"]


def test_two_failures_of_a_record_are_two_letters_and_pipelines_keep_to_their_own(
    shop: Shop,
) -> None:
    etl = shop.etl
    source = etl.declare()
    etl.fill(source, [{"id": 1000, "cents": -1}, {"id": 1, "cents": 1}])
    targets = [etl.target() for _ in range(3)]
    sinks = [stream_sink("paid", "positive", targets[0]), stream_sink("few", "small", targets[1])]
    first = shop.file("first", source, *sinks)
    second = shop.file("second", source, stream_sink("paid", "positive", targets[2]))
    shop.run(first)
    shop.run(second)

    def jobs(*options: str) -> list[str]:
        return sorted(row["job"] for row in shop.command("dlq", "list", *options))

    assert jobs() == ["first.few", "first.paid", "second.paid"]
    assert jobs("--pipeline", first) == ["first.few", "first.paid"]
    assert jobs("--pipeline", second) == ["second.paid"]
    (other,) = shop.command("dlq", "list", "--pipeline", second)
    said = shop.command("dlq", "replay", str(other["id"]), "--pipeline", first)
    assert said["left"] == [{"id": other["id"], "reason": "there is no such letter"}]
    replayed = shop.command("dlq", "replay", "--all", "--pipeline", second)["replayed"]
    assert replayed == [other["id"]]
    assert len(etl.records(source)) == 3


def test_a_topic_that_is_made_anew_has_letters_of_its_own(shop: Shop) -> None:
    etl = shop.etl
    source = etl.declare(partitions=1)
    file = shop.file("anew", source, stream_sink("paid", "positive", etl.target()))
    etl.send(source, [(b"old", None)])
    shop.run(file)
    etl.channel.rpc(Queue.Delete(queue=source))
    etl.channel.declare_queue(source, durable=True, arguments={**STREAM, "x-partitions": 1})
    etl.send(source, [(b"new", None)])
    shutil.rmtree(etl.directory / "anew")
    shop.run(file)
    rows = shop.command("dlq", "list", "--job", "anew.paid")
    assert [(row["offset"], row["value"]) for row in rows] == [(0, "new"), (0, "old")]


def test_a_job_that_waits_is_paused_and_one_that_never_ran_has_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    etl = shop.etl
    source = etl.declare()
    is_back, start = threading.Event(), sinks.start

    def start_or_not(*arguments: Any, **options: Any) -> Any:
        if not is_back.is_set():
            raise ConnectionLostError("the broker is away")
        return start(*arguments, **options)

    def state() -> list[str]:
        return [row["state"] for row in shop.command("status")]

    monkeypatch.setattr(sinks, "start", start_or_not)
    file = shop.file("waits", source, stream_sink("paid", "positive", etl.target()))
    with running(etl, Pipeline.from_toml(file)) as wait:
        wait((etl.directory / "etl.db").exists, "a store")
        wait(lambda: state() == ["paused"], "a pause")
        assert shop.metric("leveret_etl_paused")["waits.paid"] == 1
        is_back.set()
        wait(lambda: state() == ["running"], "its end")
        assert shop.metric("leveret_etl_paused")["waits.paid"] == 0
    assert state() == ["stopped"]

    file = shop.file("never", source, stream_sink("paid", "positive", "no such stream"))
    with pytest.raises(PipelineError, match="there is no stream 'no such stream'"):
        shop.run(file)
    assert sorted(state()) == ["failed", "stopped"]


def test_a_replay_has_the_headers_of_the_record_and_counts_go_on(shop: Shop) -> None:
    etl = shop.etl
    source = etl.declare(partitions=1)
    own = {"n": 5, "on": True, "table": {"a": 1}, "x-etl-foo": "mine"}
    with etl.client.producer(source) as producer:
        producer.send(b"{", key=b"k", headers=own)
    file = shop.file("headers", source, stream_sink("paid", "positive", etl.target()))
    for count in range(1, 3):
        shop.run(file)
        (row, *_) = shop.command("dlq", "list", "--job", "headers.paid")
        assert row["replay_count"] == count - 1
        shown = {"n": "5", "on": "true", "table": '{"a": 1}', "x-etl-foo": "mine"}
        assert row["headers"] == shown  # as Spark has them
        assert shop.command("dlq", "replay", "--all")["left"] == []
        last = etl.records(source)[-1]
        assert (last.key, last.value) == (b"k", b"{")
        assert last.headers == {**own, dead_letters.REPLAYS: str(count)}


def test_a_dead_letter_that_is_read_and_replayed_is_still_one_and_no_second_one(
    shop: Shop,
) -> None:
    etl = shop.etl
    source = etl.declare(partitions=1)
    letters = dlq_of(source)
    etl.scene._queues.append(dlq_of(letters))
    etl.send(source, [(b"{", "k")])
    shop.run(shop.file("first", source, stream_sink("paid", "positive", etl.target())))
    reading = shop.file("second", letters, stream_sink("paid", "positive", etl.target()))
    for count in range(1, 3):
        shop.run(reading)
        assert len(shop.command("dlq", "replay", "--job", "second.paid")["replayed"]) == 1
        first, *copies = etl.records(letters)
        assert copies[-1].headers == {**first.headers, dead_letters.COPIES: str(count)}
    rows = shop.command("dlq", "list")
    assert [(row["job"], row["replay_count"]) for row in rows] == [
        ("second.paid", 2),
        ("second.paid", 1),
        ("first.paid", 0),
    ]
