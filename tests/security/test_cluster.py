"""Users, vhosts and limits on three nodes: the same everywhere, whichever of them is lost."""

import threading

import pytest

from tests.support.admin import Api
from tests.support.frames import Basic, Confirm
from tests.support.ports import free_ports
from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import ConnectionClosedError, WireConnection

NAMES = ("a", "b", "c")


class Cluster:
    def __init__(self, directory):
        self._directory = directory
        ports = zip(NAMES, free_ports(3), strict=True)
        listed = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports)
        self._flags = ("--cluster", listed, "--cluster-secret", "a secret for tests")
        self.nodes = {}
        starting = [threading.Thread(target=self.start, args=(name,)) for name in NAMES]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        assert len(self.nodes) == 3

    def start(self, name):
        flags = ("--node-name", name, "--auth-failure-delay-s", "0.1", *self._flags)
        self.nodes[name] = BrokerProcess(self._directory / name, *flags)

    def api(self, name):
        node = self.nodes[name]
        return Api(node.host, node.http_port)

    def put(self, name, *path, body):
        self._change(name, "PUT", *path, body=body)

    def delete(self, name, *path):
        self._change(name, "DELETE", *path)

    def _change(self, name, method, *path, body=None):
        """Made, and known to all nodes that are up: a stalled one is not waited for otherwise."""

        def is_made():
            answer = self.api(name).call(method, *path, body=body)
            assert answer.status in (201, 204, 503), answer
            return answer.status != 503  # there may be no leader for a moment

        eventually(is_made, f"{method} {path}")
        for other, node in self.nodes.items():
            if node.alive:
                self.settle(other)

    def settle(self, name):
        """Behind a barrier: what was answered anywhere is known to this node."""
        ask = self.api(name).call
        eventually(lambda: ask("GET", "users", "guest").status == 200, f"{name} to be up to date")

    def connect(self, name, user, password, vhost):
        url = self.nodes[name].amqp_url(vhost, user=user, password=password)
        return WireConnection.connect(url)

    def everything(self, name):
        self.settle(name)
        kinds = ("users", "permissions", "topic-permissions", "user-limits", "vhost-limits")
        found = {kind: self.api(name).call("GET", kind).json for kind in kinds}
        vhosts = self.api(name).call("GET", "vhosts").json
        return {**found, "vhosts": [(one["name"], one["metadata"]) for one in vhosts]}

    def add_user(self, node, name, vhost):
        self.put(node, "users", name, body={"password": "pw", "tags": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.put(node, "permissions", vhost, name, body=everything)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("security"))
    yield cluster
    for node in cluster.nodes.values():
        node.assert_sound()
    for node in cluster.nodes.values():
        assert node.stop() == 0
        assert TRACEBACK not in node.log_text(), node.log_text()


def test_what_one_node_answers_all_nodes_know(cluster):
    cluster.put("a", "vhosts", "shop", body={"description": "d"})
    cluster.add_user("b", "ada", "shop")
    topics = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    cluster.put("c", "topic-permissions", "shop", "ada", body=topics)
    cluster.put("a", "user-limits", "ada", "max-channels", body={"value": 9})
    cluster.put("b", "vhost-limits", "shop", "max-queues", body={"value": 9})
    known = [cluster.everything(name) for name in NAMES]
    assert known[0] == known[1] == known[2]
    assert [user["name"] for user in known[0]["users"]] == ["ada", "guest"]
    for name in NAMES:
        cluster.connect(name, "ada", "pw", "shop").close()


def test_a_vhost_made_since_has_replicated_queues_streams_and_transactions(cluster):
    cluster.put("b", "vhosts", "made", body={})
    for here, there in (("a", "b"), ("b", "c"), ("c", "a")):
        with (
            cluster.connect(here, "guest", "guest", "made") as near,
            cluster.connect(there, "guest", "guest", "made") as far,
        ):
            channel, reader = near.open_channel(), far.open_channel()
            channel.declare_queue(f"q-{here}", durable=True)
            stream = {"x-queue-type": "stream"}
            channel.declare_queue(f"s-{here}", durable=True, arguments=stream)
            channel.rpc(Confirm.Select())
            for queue in (f"q-{here}", f"s-{here}"):
                channel.publish("", queue, queue.encode())
                channel.expect(Basic.Ack)
            assert reader.get_all(f"q-{here}") == [f"q-{here}".encode()]
            reader.qos(1)
            arguments = {"x-stream-offset": "first", "x-group": "readers"}
            reader.consume(f"s-{here}", arguments=arguments)
            assert reader.delivery().body == f"s-{here}".encode()


def test_a_permission_taken_away_on_one_node_counts_on_all(cluster):
    cluster.put("a", "vhosts", "strict", body={})
    cluster.add_user("a", "bob", "strict")
    channels = [cluster.connect(name, "bob", "pw", "strict").open_channel() for name in NAMES]
    for channel in channels:
        channel.rpc(Confirm.Select())
        channel.publish("amq.fanout", "k", b"m")
        channel.expect(Basic.Ack)
    patterns = {"configure": "", "write": "^other$", "read": ""}
    cluster.put("b", "permissions", "strict", "bob", body=patterns)
    for channel in channels:
        channel.publish("amq.fanout", "k", b"m")
        channel.expect_close(403, "write access to exchange 'amq.fanout'")
    cluster.delete("c", "users", "bob")
    for channel in channels:
        channel.conn.expect_close(320, "user 'bob' is deleted")


def test_a_vhost_deleted_on_one_node_ends_on_all_and_may_be_made_again(cluster):
    cluster.put("a", "vhosts", "brief", body={})
    connections = [cluster.connect(name, "guest", "guest", "brief") for name in NAMES]
    for name, connection in zip(NAMES, connections, strict=True):
        channel = connection.open_channel()
        channel.declare_queue(f"q-{name}", durable=True)
        channel.declare_queue(f"t-{name}", exclusive=True)
        channel.declare_exchange("x", durable=True)
        channel.bind(f"q-{name}", "x", "k")
    cluster.delete("b", "vhosts", "brief")
    for connection in connections:
        connection.expect_close(320, "vhost 'brief' is deleted")
        connection.abort()
    cluster.put("c", "vhosts", "brief", body={})
    for name in NAMES:
        with cluster.connect(name, "guest", "guest", "brief") as connection:
            channel = connection.open_channel()
            assert channel.declare_queue(f"q-{name}", durable=True).message_count == 0
            channel.declare_queue(f"t-{name}", durable=True)


def test_a_limit_counts_over_all_nodes(cluster):
    cluster.put("a", "vhosts", "small", body={})
    cluster.add_user("a", "eve", "small")
    cluster.put("b", "user-limits", "eve", "max-connections", body={"value": 2})
    cluster.put("b", "vhost-limits", "small", "max-connections", body={"value": 3})
    first = cluster.connect("a", "eve", "pw", "small")
    second = cluster.connect("b", "eve", "pw", "small")

    def is_refused(name, user, password):
        try:
            cluster.connect(name, user, password, "small").close()
        except ConnectionClosedError as refusal:
            return refusal.method.reply_code == 530
        return False

    for name in NAMES:
        eventually(lambda: is_refused(name, "eve", "pw"), f"node {name} to hear of the others")  # noqa: B023
    third = cluster.connect("c", "guest", "guest", "small")
    eventually(lambda: is_refused("a", "guest", "guest"), "the vhost to be full")
    for connection in (first, second, third):
        connection.close()
    eventually(lambda: not is_refused("c", "eve", "pw"), "the user to have room again")


@pytest.mark.parametrize("lost", NAMES)
def test_definitions_survive_kill_9_of_any_node(cluster, lost):
    others = [name for name in NAMES if name != lost]
    cluster.put(lost, "vhosts", f"by-{lost}", body={})
    cluster.add_user(lost, f"user-{lost}", f"by-{lost}")
    cluster.nodes[lost].kill()
    assert cluster.everything(others[0]) == cluster.everything(others[1])
    while_gone = f"while-{lost}-was-gone"
    cluster.put(others[0], "vhosts", while_gone, body={})
    cluster.add_user(others[1], while_gone, while_gone)
    cluster.delete(others[1], "users", f"user-{lost}")
    cluster.delete(others[1], "vhosts", f"by-{lost}")
    cluster.put(others[0], "vhosts", f"by-{lost}", body={"description": "another"})
    cluster.start(lost)
    assert cluster.everything(lost) == cluster.everything(others[0])
    with cluster.connect(lost, while_gone, "pw", while_gone) as connection:
        channel = connection.open_channel()
        channel.declare_queue("q", durable=True)
        channel.rpc(Confirm.Select())
        channel.publish("", "q", b"m")
        channel.expect(Basic.Ack)
