"""Dead letters of real pipelines as operators meet them: commands, the API and metrics."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from broker.cli import leveret
from clients import cli
from spark.etl import Pipeline
from tests.etl.scene import PipelineScene
from tests.support.admin import Api
from tests.support.process import BrokerProcess

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
[[steps]]
name = "small"
kind = "validate"
input = "orders"
check = {{ small = "id < 100" }}
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
        path.write_text(head + "".join(sinks))
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
