"""What a cluster promises in single situations, one fault at a time."""

import shutil
import threading
import time
from pathlib import Path

import pytest
import trustme

from tests.cluster.conftest import StartCluster
from tests.cluster.nodes import Cluster
from tests.support.admin import Api
from tests.support.frames import Basic, Confirm, Content, Queue
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel, WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

QUORUM = {"x-queue-type": "quorum"}
PATIENCE_S = 60.0  # a bound for what never comes, not a promise


def channel_on(cluster: Cluster, name: str) -> WireChannel:
    return WireConnection.connect(cluster.nodes[name].url).open_channel()


def confirming_on(cluster: Cluster, name: str) -> WireChannel:
    channel = channel_on(cluster, name)
    channel.rpc(Confirm.Select())
    return channel


def publish(channel: WireChannel, queue: str, payload: bytes) -> type:
    """Publish one and return what became of it: Basic.Ack or Basic.Nack."""
    channel.publish("", queue, payload, delivery_mode=2)
    item = channel.conn.next_item(channel.number, timeout=PATIENCE_S)
    assert isinstance(item, Basic.Ack | Basic.Nack), item
    return type(item)


def others(cluster: Cluster, name: str) -> list[str]:
    return [one for one in cluster.nodes if one != name]


def leader(cluster: Cluster, queue: str) -> str:
    found: list[str | None] = [None]

    def look() -> bool:
        found[0] = cluster.leader_of(queue)
        return found[0] is not None

    eventually(look, f"a leader of {queue}", within_s=PATIENCE_S)
    assert found[0] is not None
    return found[0]


def test_what_one_node_declares_and_binds_every_other_knows_at_once(quiet_cluster: Cluster) -> None:
    channels = {name: confirming_on(quiet_cluster, name) for name in quiet_cluster.nodes}
    for round_number in range(20):
        for name, channel in channels.items():
            queue = f"q-{name}-{round_number}"
            channel.declare_queue(queue, durable=True, arguments=QUORUM)
            channel.bind(queue, "amq.direct", queue)
            for other in channels.values():
                other.publish("amq.direct", queue, b"x", mandatory=True, delivery_mode=2)
                item = other.conn.next_item(other.number, timeout=PATIENCE_S)
                assert isinstance(item, Basic.Ack), f"published too early: {item}"
            assert channel.count(queue) == len(channels)


def test_any_node_serves_any_queue(quiet_cluster: Cluster) -> None:
    a, b, c = (confirming_on(quiet_cluster, name) for name in "abc")
    a.declare_queue("q", durable=True, arguments=QUORUM)
    for number in range(30):
        assert publish((a, b, c)[number % 3], "q", b"%d" % number) is Basic.Ack
    for channel in (a, b, c):
        assert channel.count("q") == 30
    first = b.get("q")
    assert first is not None
    assert first.body == b"0"
    b.ack(first.delivery_tag)
    c.qos(5)
    c.consume("q")
    bodies = []
    for _ in range(29):
        content = c.delivery(timeout=PATIENCE_S)
        bodies.append(content.body)
        c.ack(content.delivery_tag)
    assert bodies == [b"%d" % number for number in range(1, 30)]
    eventually(lambda: a.count("q") == 0, "the acks to count", within_s=PATIENCE_S)


def test_publishing_goes_on_when_the_leader_is_killed_and_consumers_stay(cluster: Cluster) -> None:
    channel = confirming_on(cluster, "a")
    channel.declare_queue("q", durable=True, arguments=QUORUM)
    first_leader = leader(cluster, "q")
    survivor = others(cluster, first_leader)[0]
    publisher, consumer = confirming_on(cluster, survivor), channel_on(cluster, survivor)
    consumer.qos(1)
    consumer.consume("q")
    assert publish(publisher, "q", b"before") is Basic.Ack
    held = consumer.delivery(timeout=PATIENCE_S)
    cluster.nodes[first_leader].kill()
    assert publish(publisher, "q", b"after") is Basic.Ack
    assert leader(cluster, "q") != first_leader
    # What it held is still its own: its ack counts, and it gets the next one.
    consumer.ack(held.delivery_tag)
    after = consumer.delivery(timeout=PATIENCE_S)
    assert (after.body, after.redelivered) == (b"after", False)
    consumer.ack(after.delivery_tag)


def test_a_minority_refuses_and_goes_on_when_healed(cluster: Cluster) -> None:
    confirming_on(cluster, "a").declare_queue("q", durable=True, arguments=QUORUM)
    alone = leader(cluster, "q")
    majority = others(cluster, alone)[0]
    on_minority, on_majority = confirming_on(cluster, alone), confirming_on(cluster, majority)
    cluster.network.isolate(alone)
    assert publish(on_majority, "q", b"majority") is Basic.Ack
    assert publish(on_minority, "q", b"minority") is Basic.Nack
    with pytest.raises(ChannelClosedError, match="506"):
        channel_on(cluster, alone).rpc(
            Queue.Declare(queue="new", durable=True, arguments=QUORUM), timeout=PATIENCE_S
        )
    on_majority.declare_queue("new", durable=True, arguments=QUORUM)
    cluster.network.heal()
    cluster.await_healthy()
    assert publish(confirming_on(cluster, alone), "q", b"healed") is Basic.Ack
    assert channel_on(cluster, alone).count("new") == 0
    bodies = channel_on(cluster, alone).get_all("q")
    assert bodies[0] == b"majority"
    assert bodies[-1] == b"healed"
    assert set(bodies) <= {b"majority", b"minority", b"healed"}


def test_a_node_that_was_away_catches_up_and_can_lead(cluster: Cluster) -> None:
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments=QUORUM)
    cluster.nodes["c"].kill()
    for number in range(200):
        assert publish(publisher, "q", b"%d" % number) is Basic.Ack
    cluster.nodes["c"].launch()
    cluster.await_healthy()
    # Now c is one of the two that are left.
    cluster.nodes["a"].kill()
    assert channel_on(cluster, "c").get_all("q") == [b"%d" % number for number in range(200)]


def test_a_node_with_an_empty_disk_does_not_come_back_until_it_is_added(cluster: Cluster) -> None:
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments=QUORUM)
    assert publish(publisher, "q", b"1") is Basic.Ack
    node = cluster.nodes["c"]
    node.kill()
    node.wipe()
    node.launch()
    cluster.nodes["b"].kill()  # with the impostor's vote there would be a majority
    assert publish(publisher, "q", b"2") is Basic.Nack
    cluster.nodes["b"].launch()
    cluster.nodes["b"].await_ready()
    eventually(
        lambda: publish(confirming_on(cluster, "a"), "q", b"3") is Basic.Ack,
        "a majority",
        within_s=PATIENCE_S,
    )
    cluster.replace("c")
    cluster.await_healthy()
    cluster.nodes["a"].kill()
    bodies = channel_on(cluster, "c").get_all("q")
    assert bodies[0] == b"1"
    assert bodies[-1] == b"3"


def test_data_from_a_backup_is_refused(cluster: Cluster) -> None:
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments=QUORUM)
    node = cluster.nodes["c"]
    node.stop()
    backup = node.directory / "backup"
    shutil.copytree(node.data_dir, backup)
    node.launch()
    cluster.await_healthy()
    assert publish(publisher, "q", b"since") is Basic.Ack
    node.kill()
    shutil.rmtree(node.data_dir)
    shutil.copytree(backup, node.data_dir)
    node.launch()
    cluster.nodes["b"].kill()
    assert publish(publisher, "q", b"with a vote that does not count") is Basic.Nack


@pytest.mark.parametrize("queue_type", ["quorum", "stream"])
def test_a_damaged_replica_is_made_anew_from_the_others(cluster: Cluster, queue_type: str) -> None:
    """And is worth as much as any other then. The damage goes nowhere else."""
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments={"x-queue-type": queue_type})
    bodies = [b"needle-%03d" % number + bytes(50) for number in range(100)]
    for body in bodies:
        assert publish(publisher, "q", body) is Basic.Ack
    node = cluster.nodes["c"]
    node.kill()
    node.damage(b"needle-050")
    node.launch()
    eventually(lambda: "begun_anew" in node.log_text(), "it to be made anew", within_s=PATIENCE_S)
    cluster.await_healthy()
    cluster.nodes["a"].kill()
    reader = channel_on(cluster, "c")
    reader.qos(100)
    reader.consume("q", arguments={"x-stream-offset": "first"} if queue_type == "stream" else {})
    assert [reader.delivery(timeout=PATIENCE_S).body for _ in bodies] == bodies
    assert publish(confirming_on(cluster, "c"), "q", b"more") is Basic.Ack


def test_a_transient_queue_goes_with_its_node_and_consumers_elsewhere_are_told(
    cluster: Cluster,
) -> None:
    channel_on(cluster, "a").declare_queue("here", durable=False, arguments={})
    elsewhere = channel_on(cluster, "b")
    elsewhere.consume("here", "tag")
    elsewhere.publish("", "here", b"x")
    assert elsewhere.delivery(timeout=PATIENCE_S).body == b"x"
    cluster.nodes["a"].kill()
    cancel = elsewhere.conn.next_item(elsewhere.number, timeout=PATIENCE_S)
    assert isinstance(cancel, Basic.Cancel)
    assert cancel.consumer_tag == "tag"

    def is_gone() -> bool:
        try:
            channel_on(cluster, "b").count("here")
        except ChannelClosedError as closed:
            return closed.method.reply_code == 404
        return False

    eventually(is_gone, "the queue to be given up", within_s=PATIENCE_S)


def test_a_classic_queue_is_there_again_with_its_node_and_refuses_meanwhile(
    cluster: Cluster,
) -> None:
    home = confirming_on(cluster, "a")
    home.declare_queue("kept", durable=True, arguments={"x-queue-type": "classic"})
    home.publish("", "kept", b"x", delivery_mode=2)
    home.expect(Basic.Ack, timeout=PATIENCE_S)
    cluster.nodes["a"].kill()
    with pytest.raises(ChannelClosedError, match="home node"):
        channel_on(cluster, "b").get("kept")
    publisher = confirming_on(cluster, "b")
    publisher.publish("", "kept", b"y", delivery_mode=2)
    publisher.expect(Basic.Nack, timeout=PATIENCE_S)
    cluster.nodes["a"].launch()
    cluster.nodes["a"].await_ready()
    cluster.await_healthy()
    assert channel_on(cluster, "b").get("kept").body == b"x"


def test_every_node_can_be_restarted_in_turn_under_load(cluster: Cluster) -> None:
    """Publishers on another node see a pause and lose nothing."""
    confirming_on(cluster, "a").declare_queue("q", durable=True, arguments=QUORUM)
    published = 0
    for name in cluster.nodes:
        stays = others(cluster, name)[0]
        publisher = confirming_on(cluster, stays)
        stopper = threading.Thread(target=cluster.nodes[name].stop)
        stopper.start()
        began, longest = time.monotonic(), 0.0
        while stopper.is_alive() or time.monotonic() - began < 1.0:
            sent = time.monotonic()
            assert publish(publisher, "q", b"%d" % published) is Basic.Ack
            longest = max(longest, time.monotonic() - sent)
            published += 1
        stopper.join()
        print(f"{name} restarted: longest confirm {longest:.2f} s")
        cluster.nodes[name].launch()
        cluster.await_healthy()
    bodies = channel_on(cluster, "b").get_all("q")
    assert bodies == [b"%d" % number for number in range(published)]


def test_a_stream_is_read_on_every_node_in_the_same_order(quiet_cluster: Cluster) -> None:
    publisher = confirming_on(quiet_cluster, "b")
    publisher.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(100):
        assert publish(publisher, "s", b"%d" % number) is Basic.Ack
    for name in quiet_cluster.nodes:
        reader = channel_on(quiet_cluster, name)
        reader.qos(100)
        reader.consume("s", arguments={"x-stream-offset": "first"})
        records: list[Content] = [reader.delivery(timeout=PATIENCE_S) for _ in range(100)]
        assert [record.body for record in records] == [b"%d" % number for number in range(100)]
        assert [record.headers["x-stream-offset"] for record in records] == list(range(100))


def declare_on_one_node(cluster: Cluster, name: str) -> str:
    """A stream of which one node has the only vote, which may not be the one that is asked."""
    arguments = {"x-queue-type": "stream", "x-initial-cluster-size": 1}
    channel_on(cluster, name).declare_queue("s", durable=True, arguments=arguments)
    return leader(cluster, "s")


def read_stream(cluster: Cluster, name: str, count: int) -> list[bytes]:
    reader = channel_on(cluster, name)
    reader.qos(count)
    reader.consume("s", arguments={"x-stream-offset": "first"})
    return [reader.delivery(timeout=PATIENCE_S).body for _ in range(count)]


def test_a_stream_with_one_replica_waits_for_no_other_node_and_all_read_it(
    cluster: Cluster,
) -> None:
    home = declare_on_one_node(cluster, "b")
    before = confirming_on(cluster, others(cluster, home)[0])
    assert publish(before, "s", b"together") is Basic.Ack
    cluster.await_healthy()
    cluster.network.isolate(home)
    assert publish(confirming_on(cluster, home), "s", b"alone") is Basic.Ack
    cluster.network.heal()
    cluster.await_healthy()
    for name in cluster.nodes:
        assert read_stream(cluster, name, 2) == [b"together", b"alone"]


def test_the_only_replica_of_a_stream_moves_when_its_node_is_removed(cluster: Cluster) -> None:
    home = declare_on_one_node(cluster, "b")
    assert publish(confirming_on(cluster, home), "s", b"before") is Basic.Ack
    left = others(cluster, home)
    api = Api("127.0.0.1", cluster.nodes[left[0]].ports["http"])
    assert api.call("DELETE", "cluster", "nodes", home).status == 204
    api.close()
    cluster.nodes.pop(home).kill()
    assert publish(confirming_on(cluster, left[0]), "s", b"after") is Basic.Ack
    for name in left:
        assert read_stream(cluster, name, 2) == [b"before", b"after"]


def test_links_between_nodes_may_be_encrypted(start_cluster: StartCluster, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "ca")}
    certificate.cert_chain_pems[0].write_to_path(files["certificate"])
    certificate.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["ca"])
    flags = [word for name, path in files.items() for word in (f"--cluster-tls-{name}", str(path))]
    cluster = start_cluster(flags=tuple(flags))
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments=QUORUM)
    assert publish(publisher, "q", b"x") is Basic.Ack
    assert channel_on(cluster, "b").get_all("q") == [b"x"]


def test_a_node_that_does_not_know_the_secret_is_not_let_in(
    cluster: Cluster, tmp_path: Path
) -> None:
    publisher = confirming_on(cluster, "a")
    publisher.declare_queue("q", durable=True, arguments=QUORUM)
    wrong = tmp_path / "wrong-secret"
    wrong.touch(mode=0o600)
    wrong.write_text("another secret, which nobody else has")
    node = cluster.nodes["c"]
    node.stop()
    right = node.flags[node.flags.index("--cluster-secret-file") + 1]
    node.flags = [str(wrong) if word == right else word for word in node.flags]
    node.launch()
    cluster.nodes["b"].kill()  # with the stranger's vote there would be a majority
    assert publish(publisher, "q", b"x") is Basic.Nack
    assert "another secret" not in node.log_text()
    assert Path(right).read_text() not in node.log_text()


def test_a_node_that_is_drained_and_removed_leaves_what_it_led_to_the_others(
    cluster: Cluster,
) -> None:
    channel = confirming_on(cluster, "a")
    queues = [f"lasting-{number}" for number in range(6)]
    for queue in queues:
        channel.rpc(Queue.Declare(queue=queue, durable=True, arguments=QUORUM))
        assert publish(channel, queue, queue.encode()) is Basic.Ack
    going = next(name for name in (leader(cluster, queue) for queue in queues) if name != "a")
    homeless = channel_on(cluster, going)
    homeless.rpc(Queue.Declare(queue="homely", durable=True, arguments={"x-queue-type": "classic"}))
    consumer = channel_on(cluster, "a")
    for queue in queues:
        consumer.consume(queue)
    held = {got.body: got for got in consumer.deliveries(len(queues))}

    api = Api("127.0.0.1", cluster.nodes["a"].ports["http"])
    assert api.call("PUT", "cluster", "nodes", going, "drain").status == 200
    assert going not in {leader(cluster, queue) for queue in queues}
    assert publish(channel, "homely", b"it lives there") is Basic.Ack
    for got in held.values():
        consumer.ack(got.delivery_tag)
    for queue in queues:
        assert publish(channel, queue, b"again") is Basic.Ack
    again = consumer.deliveries(len(queues))
    assert [(got.body, got.redelivered) for got in again] == [(b"again", False)] * len(queues)

    assert api.call("DELETE", "cluster", "nodes", going).status == 409  # it is homely's only one
    assert channel.rpc(Queue.Delete(queue="homely")).message_count == 1
    assert api.call("DELETE", "cluster", "nodes", going).status == 204
    api.close()
    cluster.nodes.pop(going).kill()
    for got in again:
        consumer.ack(got.delivery_tag)
    for queue in queues:
        assert publish(channel, queue, b"and again") is Basic.Ack
        assert consumer.delivery().body == b"and again"
