"""A member that is damaged is removed by the others, and comes back with nothing of its own."""

import pytest
import trio

from broker.cluster.keeper import Keeper, Wish
from broker.cluster.kinds import Kind
from broker.cluster.mending import Mending
from queues.raft.messages import NodeId
from tests.cluster_host.test_members import A, fill, life_of, quick, say, started
from tests.cluster_host.world import Life, World


def equip(world: World, life: Life) -> None:
    keeper = Keeper(
        life.node,
        life.timers,
        groups=lambda: list(life.replication.logs.values()),
        wish_of=lambda _: Wish(world.voters),
        is_up=life.is_up,
    )
    mending = Mending(
        life.replication,
        life.timers,
        others_of=lambda _: tuple(node for node in world.voters if node != life.node),
        look=keeper.look,
        spared=b"",
    )
    life.handlers[Kind.MEND] = mending.received
    life.on_down.append(mending.node_down)

    def look() -> None:  # as when a node begins to lead
        keeper.look()
        life.timers.call_at(life.timers.now_ms() + 500, look)

    look()


def damage(life: Life) -> None:
    log = life.replication.logs[A]
    life.replication.damage(log, "a test says so")
    life.flush()


def voters(world: World) -> tuple[NodeId, ...]:
    leader = world.leader(A)
    config = leader.log.config if leader is not None and leader.log is not None else None
    return config.voters if config is not None else ()


def is_whole(world: World) -> bool:
    logs = [life.replication.logs[A] for life in world.lives.values()]
    return set(voters(world)) == set(world.voters) and all(log.damaged is None for log in logs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_it_is_worth_as_much_as_any_other_in_the_end(seed: int, whom: str) -> None:
    world = quick(seed)

    async def scenario(world: World) -> None:
        leader = life_of(world, await started(world))
        for life in world.lives.values():
            equip(world, life)
        await fill(world, 10)
        victim = leader
        if whom == "follower":
            victim = next(life for life in world.lives.values() if life is not leader)
        gid = victim.replication.logs[A].gid
        damage(victim)
        await say(world, b"add %d " % next(world.entries))
        await world.until(lambda: is_whole(world))
        assert victim.replication.logs[A].gid != gid
        # With one of the others gone it is one of a majority.
        world.crash(next(node for node in world.voters if node != victim.node))
        await say(world, b"add %d " % next(world.entries))
        await world.heal()

    world.run(scenario)


@pytest.mark.parametrize("seed", range(12))
def test_crashes_on_the_way_do_no_harm(seed: int) -> None:
    """Whichever node it is; the book compares what all say, and knows what was confirmed."""
    world = quick(seed)

    async def scenario(world: World) -> None:
        await started(world)
        for life in world.lives.values():
            equip(world, life)
        await fill(world, 10)
        for _ in range(3):
            damage(world.lives[world.random.choice(world.voters)])
            await trio.sleep(world.random.uniform(0.0, 2.0))
            node = world.random.choice(world.voters)
            world.crash(node)
            world.write(A)
            await trio.sleep(world.random.uniform(0.0, 1.0))
            equip(world, world.start(node))
            world.write(A)
            await world.until(lambda: is_whole(world))
            await say(world, b"add %d " % next(world.entries))
        await world.heal()

    world.run(scenario)


def test_a_leader_that_was_not_heard_of_is_found() -> None:
    """All nodes are asked where no leader is known; what the one that leads says is heeded."""
    world = quick()

    async def scenario(world: World) -> None:
        leader = life_of(world, await started(world))
        for life in world.lives.values():
            equip(world, life)
        await fill(world, 5)
        victim = next(life for life in world.lives.values() if life is not leader)
        gid = victim.replication.logs[A].gid
        damage(victim)
        victim.book.node_down(leader.node)  # as if the news had been lost
        assert victim.book.leader_of(A) is None
        await world.until(lambda: victim.replication.logs[A].gid != gid and is_whole(world))
        await world.heal()

    world.run(scenario)


def test_a_late_answer_says_nothing_of_a_member_that_has_begun_anew_since() -> None:
    """It votes again. Only what is asked after the next damage can tell that it is removed."""
    world = quick()

    async def scenario(world: World) -> None:
        leader = life_of(world, await started(world))
        for life in world.lives.values():
            equip(world, life)
        await fill(world, 5)
        victim = next(life for life in world.lives.values() if life is not leader)
        received, late = victim.handlers[Kind.MEND], []

        def hold_back_the_first(node: NodeId, body: bytes) -> None:
            if node == leader.node and not late:
                late.append(body)
            else:
                received(node, body)

        victim.handlers[Kind.MEND] = hold_back_the_first
        damage(victim)
        victim.book.node_down(leader.node)
        await world.until(lambda: bool(late))
        victim.book.heard(A, victim.book.term_of(A), leader.node)
        await world.until(lambda: is_whole(world))
        gid = victim.replication.logs[A].gid
        damage(victim)
        received(leader.node, late[0])
        victim.flush()
        await trio.sleep(0.5)
        assert victim.replication.logs[A].gid == gid
        assert victim.node in voters(world)
        await world.until(lambda: is_whole(world))
        await world.heal()

    world.run(scenario)


def test_who_is_not_removed_does_not_begin_anew() -> None:
    """Its old vote may count: without a majority of the others nothing is forgotten."""
    world = quick()

    async def scenario(world: World) -> None:
        leader = life_of(world, await started(world))
        for life in world.lives.values():
            equip(world, life)
        await fill(world, 5)
        victim, other = (life for life in world.lives.values() if life is not leader)
        world.crash(other.node)
        damage(victim)
        await trio.sleep(20.0)
        assert victim.replication.logs[A].damaged is not None
        equip(world, world.start(other.node))
        await world.until(lambda: is_whole(world))
        await world.heal()

    world.run(scenario)
