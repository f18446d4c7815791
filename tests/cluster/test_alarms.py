"""When one node is short of something, publishers wait on all of them, and nobody else does."""

from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster
from tests.support.frames import Basic, Confirm, Connection
from tests.support.wire import WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(300)]

PATIENCE_S = 60.0  # a bound for what never comes, not a promise
MORE_THAN_ANY_DISK = 2**50


def test_publishers_of_every_node_wait_until_the_alarm_of_one_is_over(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        short = cluster.nodes["b"]
        short.flags += ["--disk-free-bytes-min", str(MORE_THAN_ANY_DISK)]
        cluster.start()
        connection = WireConnection.connect(cluster.nodes["a"].url)
        channel = connection.open_channel()
        channel.declare_queue("waits", durable=True)
        channel.rpc(Confirm.Select())
        channel.publish("", "waits", b"kept back")
        connection.expect(Connection.Blocked, timeout=PATIENCE_S)
        consumer = WireConnection.connect(cluster.nodes["c"].url).open_channel()
        consumer.consume("waits")  # whatever is not publishing goes on

        short.kill()
        connection.expect(Connection.Unblocked, timeout=PATIENCE_S)
        assert channel.expect(Basic.Ack, timeout=PATIENCE_S).delivery_tag == 1
        assert consumer.delivery(timeout=PATIENCE_S).body == b"kept back"
