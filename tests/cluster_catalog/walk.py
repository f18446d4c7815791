"""Random walks through the life of a cluster: the steps of the model, in proportions that hurt."""

from random import Random

from tests.cluster_catalog.test_cluster_model import NODES, OPERATIONS, ClusterLife

STEPS = 120
WEIGHTS = {
    "call": 30,
    "deliver_all": 8,
    "deliver": 8,
    "commit": 12,
    "apply": 12,
    "elect": 5,
    "hear_of_leader": 10,
    "lose_messages": 3,
    "disconnect": 2,
    "connect": 6,
    "pass_time": 8,
    "install": 8,
    "checkpoint": 2,
    "restart": 1,
    "quiet": 3,
}


def walk(seed: int) -> None:
    """BrokenPromiseError where a promise is broken."""
    random = Random(seed)
    life = ClusterLife()
    arguments = {
        "call": lambda: (
            random.choice(NODES),
            random.choice(["x1", "x2"]),
            random.choice(OPERATIONS),
            random.random() < 0.5,
        ),
        "deliver": lambda: (*random.sample(NODES, 2), random.randint(1, 4)),
        "apply": lambda: (random.choice(NODES), random.randint(1, 3)),
        "elect": lambda: (random.choice(NODES), random.randint(0, 2)),
        "hear_of_leader": lambda: (random.choice(NODES),),
        "lose_messages": lambda: random.sample(NODES, 2),
        "disconnect": lambda: random.sample(NODES, 2),
        "connect": lambda: random.sample(NODES, 2),
        "pass_time": lambda: (random.choice([1, 1, 1, 600, 3100]),),
        "install": lambda: (random.choice(NODES),),
        "checkpoint": lambda: (random.choice(NODES),),
        "restart": lambda: (random.choice(NODES),),
    }
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        if name == "install" and life.cluster.leader is None:
            continue
        getattr(life, name)(*arguments.get(name, tuple)())
        life._collect()
        life.nodes_agree_at_the_same_index()
    life.teardown()
