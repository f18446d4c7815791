"""Dead letters on a whole cluster: what their target cannot take is not lost, nor there twice."""

import trio

from tests.cluster_simulation.scene import Scene
from tests.cluster_simulation.sessions import CONSUMING
from tests.support.frames import Basic

LONG_S = 8.0  # longer than it takes to refuse, without a majority or a leader
TO_DEAD = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}


async def reject_one(scene: Scene, session) -> None:
    tag, _ = await scene.get(session, "q")
    session.send(Basic.Reject(delivery_tag=tag, requeue=False), CONSUMING)


async def dies_while_down(scene: Scene, down) -> None:
    """A confirmed message is rejected while nobody can take its letter."""
    up = next(home for home in scene.homes.values() if home not in down)
    session = await scene.connect(up)
    number = await scene.publish_confirmed(session, "q")
    for home in down:
        home.crash(power=False)
    await trio.sleep(LONG_S / 2)
    await reject_one(scene, session)
    await trio.sleep(LONG_S)
    assert scene.front(scene.leader("q"), "q").queue.dying == 1
    for home in down:
        home.start()
    await scene.until(lambda: scene.front(scene.leader("q"), "q").queue.is_empty)
    await scene.until(lambda: scene.leader("dead") is not None)
    assert (await scene.drained("q"), await scene.drained("dead")) == ([], [number])


def test_a_letter_waits_for_the_home_node_of_its_queue() -> None:
    async def script(scene: Scene) -> None:
        await scene.declare("q", queue_type="quorum", **TO_DEAD)
        home = scene.homes["c"]
        await scene.declare("dead", on=home, queue_type="classic")
        await dies_while_down(scene, [home])

    Scene(script).run()


def test_a_letter_waits_for_the_majority_of_its_queue() -> None:
    async def script(scene: Scene) -> None:
        await scene.declare("q", queue_type="quorum", **TO_DEAD)
        await scene.declare("dead", queue_type="quorum")
        source, target = scene.members("q"), scene.members("dead")
        down = sorted(target, key=lambda home: home in source)[:2]
        assert len(set(source) - set(down)) * 2 > len(source)
        await dies_while_down(scene, down)

    Scene(script, nodes=5).run()


def test_a_letter_is_there_once_if_the_leader_is_lost_before_it_says_so() -> None:
    async def script(scene: Scene) -> None:
        await scene.declare("q", queue_type="quorum", **TO_DEAD)
        await scene.declare("dead", queue_type="quorum")
        await scene.until(lambda: scene.leader("q") and scene.leader("dead"))
        leader = scene.leader("q")
        others = [home for home in scene.homes.values() if home is not leader]
        session = await scene.connect(others[0])
        number = await scene.publish_confirmed(session, "q")
        await reject_one(scene, session)
        dead = scene.front(scene.leader("dead"), "dead").queue
        await scene.until(lambda: dead.ready, every_s=0.0001)
        kept = leader.life.storage._replicas[scene.uids["q"]].messages
        assert kept == 1, "the log says so already: this would show nothing"
        leader.crash(power=False)
        await scene.until(lambda: scene.leader("q") and scene.leader("dead"))
        leader.start()
        queue = scene.front(scene.leader("q"), "q").queue
        await scene.until(lambda: queue.is_empty and not queue.unacked)
        await trio.sleep(LONG_S)
        assert (await scene.drained("q"), await scene.drained("dead")) == ([], [number])

    Scene(script).run()
