"""Schemas survive kill -9 and checkpoints; three nodes agree, whichever is lost, whoever races."""

import threading

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from clients.schemas import AvroReader, AvroWriter, IncompatibleSchemaError, SchemaRegistry
from tests.registry.conftest import Web, field, record
from tests.support.ports import free_ports
from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.waiting import eventually

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(300)]

FIRST = record(field("a"))
SECOND = record(field("a"), field("b", default=0))
THIRD = record(field("a"), field("b", default=0), field("c", default=0))
# None of them is read as another.
ARRAY, MAP = {"type": "array", "items": "int"}, {"type": "map", "values": "int"}
KINDS = ["string", "boolean", "long", ARRAY, MAP]


def state_of(web):
    """All that the registry says of itself."""
    rows = web.call("GET", "schemas", deleted="true").json
    subjects = web.call("GET", "subjects", deleted="true").json
    settings = [
        web.call("GET", kind, *where, defaultToGlobal="true").json
        for kind in ("config", "mode")
        for where in ((), *((name,) for name in subjects))
    ]
    return rows, subjects, settings


def fill(web):
    web.registered("kept", FIRST)
    web.registered("kept", SECOND)
    web.registered("other", FIRST)
    refers = [{"name": "R", "subject": "kept", "version": 2}]
    web.registered("refers", '["null", "R"]', references=refers)
    web.registered("gone", record(field("x"), name="Gone"))
    web.call("DELETE", "subjects", "kept", "versions", "1")
    web.call("DELETE", "subjects", "gone")
    web.call("DELETE", "subjects", "gone", permanent="true")
    web.call("PUT", "config", body={"compatibility": "FULL"})
    web.call("PUT", "config", "other", body={"compatibility": "FORWARD_TRANSITIVE"})
    web.call("PUT", "mode", "other", body={"mode": "READONLY"})


def test_everything_survives_kill_9_and_a_stop(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    web = Web(broker.host, broker.http_port)
    fill(web)
    before = state_of(web)
    broker.kill()
    broker = start_broker(*data)
    web = Web(broker.host, broker.http_port)
    assert state_of(web) == before
    assert web.register("other", SECOND).code == 42205
    broker.stop()
    broker = start_broker(*data)
    web = Web(broker.host, broker.http_port)
    assert state_of(web) == before
    ids = {row["id"] for row in before[0]}
    new = web.registered("new", record(field("n"), name="New"))
    assert new > max(ids) + 1  # that of what is gone for good is not given out again


# Races


def race(action, count):
    """Do it in so many threads at once; the results, errors among them."""
    results = [None] * count
    together = threading.Barrier(count)

    def run(number):
        together.wait()
        try:
            results[number] = action(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def race_of_strangers(urls, subject):
    """Schemas that do not go together: one is taken, all others are refused."""

    def register(number):
        registry = SchemaRegistry(urls[number % len(urls)])
        return registry.register(subject, record(field("a", KINDS[number])))

    results = race(register, len(KINDS))
    taken = [each for each in results if isinstance(each, int)]
    refused = [each for each in results if isinstance(each, IncompatibleSchemaError)]
    assert len(taken) == 1, results
    assert len(refused) == len(KINDS) - 1, results
    assert SchemaRegistry(urls[0]).versions(subject) == [1]


def race_of_twins(urls, subject):
    """The same schema: it has one id, in one version."""

    def register(number):
        return SchemaRegistry(urls[number % len(urls)]).register(subject, FIRST)

    results = race(register, 8)
    assert len(set(results)) == 1, results
    assert SchemaRegistry(urls[0]).versions(subject) == [1]


def race_of_neighbours(urls, prefix):
    """Other schemas in other subjects: each gets an id of its own."""

    def register(number):
        registry = SchemaRegistry(urls[number % len(urls)])
        return registry.register(f"{prefix}{number}", record(name=f"N{number}"))

    results = race(register, 8)
    assert len(set(results)) == 8, results


def test_races_on_one_node(broker, subject):
    urls = [broker.http_url("")]
    race_of_strangers(urls, f"{subject}.strangers")
    race_of_twins(urls, f"{subject}.twins")
    race_of_neighbours(urls, f"{subject}.neighbour")


def test_a_reference_and_a_deletion_race(web, broker, subject):
    """A version that is referred to is not deleted, whichever of the two was first."""
    web.registered(subject, record(name="Used"))
    refers = [{"name": "Used", "subject": subject, "version": 1}]

    def act(number):
        mine = Web(broker.host, broker.http_port)
        if number % 2:
            return mine.call("DELETE", "subjects", subject).status
        body = record(field("u", "Used"), name=f"User{number}")
        return mine.register(f"{subject}.{number}", body, references=refers).status

    results = race(act, 6)
    users = [n for n in range(0, 6, 2) if results[n] == 200]
    deleted = 200 in results[1::2]
    assert deleted is (not users), results
    assert (web.call("GET", "subjects", subject, "versions").status == 200) is bool(users)


# Three nodes


class Cluster:
    def __init__(self, directory):
        self._directory = directory
        ports = zip("abc", free_ports(3), strict=True)
        listed = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports)
        self._flags = ("--cluster", listed, "--cluster-secret", "a secret for tests")
        self.nodes = {}
        self.start(*"abc")

    def start(self, *names):
        starting = [threading.Thread(target=self._start, args=(name,)) for name in names]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        assert all(self.nodes[name].alive for name in names)

    def _start(self, name):
        flags = ("--node-name", name, *self._flags)
        self.nodes[name] = BrokerProcess(self._directory / name, *flags)

    def url(self, *names):
        return ",".join(self.nodes[name].http_url("") for name in names)

    def web(self, name):
        return Web(self.nodes[name].host, self.nodes[name].http_port)

    def close(self):
        for node in self.nodes.values():
            if node.alive:
                node.stop()
            assert TRACEBACK not in node.log_text(), node.log_text()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_three_nodes_have_one_registry_whichever_is_lost(cluster):
    webs = {name: cluster.web(name) for name in "abc"}
    one = SchemaRegistry(cluster.url("a")).register("s", FIRST)
    for web in webs.values():  # at once, on all of them
        assert web.call("GET", "subjects", "s", "versions", "1").json["id"] == one
        assert web.call("GET", "schemas", "ids", str(one)).status == 200
    urls = [cluster.url(name) for name in "abc"]
    race_of_strangers(urls, "strangers")
    race_of_twins(urls, "twins")
    race_of_neighbours(urls, "neighbour")
    before = state_of(webs["a"])
    assert state_of(webs["b"]) == before
    assert state_of(webs["c"]) == before
    # The one that leads the definitions at first.
    cluster.nodes["a"].kill()
    registry = SchemaRegistry(cluster.url(*"abc"))
    new = registry.register("s", SECOND)
    assert registry.version("s").id == new
    cluster.start("a")
    assert cluster.web("a").call("GET", "schemas", "ids", str(new)).status == 200
    # Then the others, its successor among them: what is there can still be read.
    cluster.nodes["b"].kill()
    cluster.nodes["c"].kill()
    web = cluster.web("a")
    refused = web.register("s", THIRD)
    assert (refused.status, refused.code) == (500, 50002), refused
    assert web.call("GET", "schemas", "ids", str(one)).status == 200
    cluster.start("b", "c")
    eventually(lambda: web.register("s", THIRD).status == 200, "a quorum", within_s=60)
    conf = {"url": cluster.url("b", "c"), "basic.auth.user.info": "guest:guest"}
    with SchemaRegistryClient(conf) as client:
        assert client.get_versions("s") == [1, 2, 3]
    states = [state_of(cluster.web(name)) for name in "abc"]
    assert states[0] == states[1] == states[2]
    rolled = SchemaRegistry(cluster.url(*"abc"))
    data = AvroWriter(rolled, "s", FIRST).encode({"a": 1})
    assert AvroReader(rolled, subject="s").decode(data) == {"a": 1, "b": 0, "c": 0}
