"""Two of three replicas are damaged: every node says so in time, and nobody waits for ever."""

import pytest
import trio

from broker.streams.host import partition_uid
from tests.cluster_simulation.scene import Scene
from tests.cluster_simulation.sessions import CONSUMING
from tests.support.frames import Basic, Queue

LONG_S = 25.0


def damage(scene: Scene, uid: bytes, *, with_leader: bool, count: int = 2) -> None:
    """Some members of that log, its leader among them or not."""
    members = list(scene.homes.values())
    leads = [home for home in members if home.life.storage.replication.logs[uid].leads]
    others = [home for home in members if home not in leads]
    for home in ([*leads, *others] if with_leader else others)[:count]:
        replication = home.life.storage.replication
        replication.damage(replication.logs[uid], "a bit fell over")


@pytest.mark.parametrize("with_leader", [True, False])
def test_publishes_to_a_queue_are_refused_on_every_node(with_leader: bool) -> None:
    async def script(scene: Scene) -> None:
        await scene.declare("q", queue_type="quorum")
        await scene.until(lambda: scene.leader("q"))
        damage(scene, scene.uids["q"], with_leader=with_leader)
        for home in scene.homes.values():
            session = await scene.connect(home)
            numbers = [scene.publish(session, "q")]
            await trio.sleep(LONG_S)
            numbers.append(scene.publish(session, "q"))
            await trio.sleep(LONG_S)
            assert all(scene.ledger.sent[number].refused for number in numbers), home.name

    Scene(script).run()


@pytest.mark.parametrize("with_leader", [True, False])
def test_a_stream_says_so_on_every_node_and_refuses(with_leader: bool) -> None:
    async def script(scene: Scene) -> None:
        first = next(iter(scene.homes.values()))
        await scene.declare("s", queue_type="stream")
        uid = partition_uid(scene.uids["s"], 0)
        logs = [home.life.storage.replication.logs for home in scene.homes.values()]
        await scene.until(lambda: any(each[uid].leads for each in logs))
        session = await scene.connect(first)
        await scene.publish_confirmed(session, "s")
        damage(scene, uid, with_leader=with_leader)
        await trio.sleep(LONG_S)
        for home in scene.homes.values():
            session = await scene.connect(home)
            number = scene.publish(session, "s")
            await trio.sleep(LONG_S)
            assert scene.ledger.sent[number].refused, home.name
            session.send(Basic.Qos(prefetch_count=10), CONSUMING)
            start = {"x-stream-offset": "first"}
            wanted = Basic.Consume(queue="s", consumer_tag="c", arguments=start)
            answer = await scene.ask(session, wanted, CONSUMING)
            assert (answer.name, answer.reply_code) == ("Channel.Close", 404), home.name
            assert "damaged" in answer.reply_text

    Scene(script).run()


def test_a_stream_with_one_damaged_replica_is_read_on_all_nodes() -> None:
    async def script(scene: Scene) -> None:
        await scene.declare("s", queue_type="stream")
        uid = partition_uid(scene.uids["s"], 0)
        logs = [home.life.storage.replication.logs for home in scene.homes.values()]
        await scene.until(lambda: any(each[uid].leads for each in logs))
        session = await scene.connect(next(iter(scene.homes.values())))
        await scene.publish_confirmed(session, "s")
        damage(scene, uid, with_leader=True, count=1)
        await trio.sleep(LONG_S)
        for home in scene.homes.values():
            assert scene.front(home, "s").damaged is None, home.name
            session = await scene.connect(home)
            await scene.publish_confirmed(session, "s")
            passive = Queue.Declare(queue="s", passive=True, durable=True)
            assert (await scene.ask(session, passive)).message_count

    Scene(script).run()
