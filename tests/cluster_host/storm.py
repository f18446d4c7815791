"""Seeded storms: clients write while nodes crash, links break, and logs are compacted."""

import trio

from tests.cluster_host.world import World


async def storm(world: World) -> None:
    random = world.random
    for node in world.voters:
        world.start(node)
    steps = random.randint(20, 120)
    pause_s = random.choice([0.005, 0.03, 0.1])
    fault_chance = random.choice([0.0, 0.03, 0.1])
    for _ in range(steps):
        await trio.sleep(world.spread(pause_s))
        uid = random.choice(world.uids)
        if random.random() < fault_chance:
            fault(world)
        elif random.random() < 0.1:
            world.read(uid)
        else:
            world.write(uid)
    await world.heal()


def fault(world: World) -> None:
    random = world.random
    what = random.choice(("crash", "crash", "restart", "restart", "cut", "cut", "mend", "transfer"))
    node = random.choice(world.voters)
    if what == "crash" and node in world.lives:
        world.crash(node)
    elif what == "restart" and node not in world.lives:
        world.start(node)
    elif what == "cut":
        a, b = sorted(random.sample(world.voters, 2))
        world.say("cut", a, b)
        world.cuts.add((a, b))
        world.unlink(a, b)
    elif what == "mend":
        world.cuts.clear()
        world.link()
    elif what == "transfer":
        uid = random.choice(world.uids)
        machine = world.leader(uid)
        if machine is not None and machine.log is not None:
            config = machine.log.config
            assert config is not None
            others = [voter for voter in config.voters if voter != machine.log._replication.me]
            machine.log.transfer(random.choice(others))
            world.end_turn(machine)


async def left_behind(world: World) -> None:
    """A node is away for long, is brought up to date, and crashes right then."""
    for node in world.voters:
        world.start(node)
    await world.until(lambda: all(world.leader(uid) for uid in world.uids))
    away = world.random.choice(world.voters)
    world.crash(away)
    world.checkpoint_every = 3
    for _ in range(60):
        await trio.sleep(0.05)
        for uid in world.uids:
            world.write(uid)
    before = world.transfers
    world.start(away)
    await world.until(lambda: world.transfers > before, step_s=0.002)
    await trio.sleep(world.random.choice([0.0, 0.01, 0.1]))
    world.crash(away)
    await world.heal()
