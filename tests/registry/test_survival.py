"""Schemas survive kill -9 and checkpoints; three nodes agree, whichever is lost, whoever races."""

import threading

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from broker.registry.avro_text import TEXT_BYTES_MAX
from clients.schemas import AvroReader, AvroWriter, IncompatibleSchemaError, SchemaRegistry
from tests.cluster.nodes import Cluster
from tests.cluster.proxy import HOST
from tests.registry.conftest import Web, field, record
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


def race_of_giants(urls, prefix):
    """Of the largest size, several at each node: they travel between nodes in pieces."""

    def register(number):
        registry = SchemaRegistry(urls[number % len(urls)])
        giant = record(name=f"G{number}", doc="x" * (TEXT_BYTES_MAX - 200))
        return registry.register(f"{prefix}{number}", giant)

    results = race(register, 9)
    assert len({each for each in results if isinstance(each, int)}) == 9, results


# Three nodes


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        yield cluster
        assert cluster.tracebacks() == []


class Member:
    """A node, as clients of the registry see it."""

    def __init__(self, cluster, name):
        self._port = cluster.nodes[name].ports["http"]
        self.url = f"http://{HOST}:{self._port}"

    def ask(self, *path, **query):
        """Until it is answered: nodes that are slow to hear of each other take each other for
        lost, and there may be no leader for a moment."""
        answers = []
        web = self.web()

        def is_answered():
            answers.append(web.call("GET", *path, **query))
            return answers[-1].status < 500

        eventually(is_answered, f"an answer to {path}", within_s=60)
        web.close()
        return answers[-1]

    def web(self):
        """A new connection: others may have ended with the node that was."""
        return Web(HOST, self._port)


def restart(cluster, *names):
    for name in names:
        cluster.nodes[name].launch()
    for name in names:
        cluster.nodes[name].await_ready()
    cluster.await_healthy()


def test_three_nodes_have_one_registry_whichever_is_lost(cluster):
    members = {name: Member(cluster, name) for name in "abc"}
    urls = [member.url for member in members.values()]
    one = SchemaRegistry(urls[0]).register("s", FIRST)
    for member in members.values():  # at once, on all of them
        assert member.ask("subjects", "s", "versions", "1").json["id"] == one
        assert member.ask("schemas", "ids", str(one)).status == 200
    race_of_strangers(urls, "strangers")
    race_of_twins(urls, "twins")
    race_of_neighbours(urls, "neighbour")
    race_of_giants(urls, "giant")
    # The one that leads the definitions goes, in the middle of it all.
    everyone = SchemaRegistry(",".join(urls))
    cluster.await_healthy()
    leader = cluster.nodes["a"].status()["leader"]
    cluster.nodes[leader].kill()
    new = everyone.register("s", SECOND)
    assert everyone.version("s").id == new
    restart(cluster, leader)
    assert members[leader].ask("schemas", "ids", str(new)).status == 200
    # Then all others: nothing is registered, and what is there can be read.
    others = [name for name in "abc" if name != leader]
    for name in others:
        cluster.nodes[name].kill()
    alone = members[leader].web()
    refused = alone.register("s", THIRD)
    assert (refused.status, refused.code) == (500, 50002), refused
    assert alone.call("GET", "schemas", "ids", str(one)).status == 200
    restart(cluster, *others)
    everyone.register("s", THIRD)
    conf = {"url": ",".join(urls), "basic.auth.user.info": "guest:guest"}
    with SchemaRegistryClient(conf) as client:
        assert client.get_versions("s") == [1, 2, 3]

    def is_the_same_everywhere():
        states = [state_of(member.web()) for member in members.values()]
        return states[0] == states[1] == states[2]

    eventually(is_the_same_everywhere, "the nodes to agree", within_s=60)
    data = AvroWriter(everyone, "s", FIRST).encode({"a": 1})
    assert AvroReader(everyone, subject="s").decode(data) == {"a": 1, "b": 0, "c": 0}
