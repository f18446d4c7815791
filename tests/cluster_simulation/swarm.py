"""Which features, faults and rates a run has: drawn from its seed, so that runs differ in kind."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import broker.cluster.catalog
import broker.log_host
import queues.cold
import queues.durable
import queues.live_log
import queues.paged
from queues.storage.options import StoreOptions
from tests.cluster_simulation.kinds import KINDS

LINK_FAULTS = ("cut", "cut_one_way", "isolate", "strand", "break_link", "slow", "pause")
NODE_FAULTS = ("kill", "power", "stop", "kill_all", "transfer", "drain", "full")

LONG_CHANCE = 0.15
LONG_S = 45.0
# Longer than what calls no majority (3 s), than a front asks (10 s), than a copy may take (30 s).
OUTAGES_S = (4.0, 12.0, 31.0)


@dataclass(frozen=True)
class Swarm:
    nodes: int
    calm: bool  # links hold
    seconds: float  # of faults and clients
    clients: int
    kinds: tuple[str, ...]
    weights: dict[str, int]  # of what clients do
    settle_weights: tuple[int, int, int]  # ack, requeue, reject
    faults: dict[str, int]
    moments: tuple[str, ...]  # of ambushes
    ambushes: tuple[str, ...]  # what they do
    fault_s: float  # from one to the next, about
    pause_s: float  # from one action of a client to its next, about
    sync_s: float
    read_s: float
    delay_s: float
    hot_bytes: int
    filler_bytes: tuple[int, ...]
    bursts: tuple[int, ...]  # how many messages a client may publish at once
    outages_s: tuple[float, ...]  # beyond every timer; none in most runs
    options: StoreOptions
    tunables: dict[tuple[object, str], int]


def draw(random: Random) -> Swarm:
    some = random.choice
    calm = random.random() < 0.35
    weights = {
        "publish": 10,
        "consume": some([2, 4]),
        "settle": some([8, 20]),
        "get": some([0, 2]),
        "cancel": some([0, 1]),
        "disconnect": some([0, 1]),
        "declare": some([1, 3]),
        "look": some([2, 6]),
        "delete": some([1, 3]),
        "bind": some([0, 2]),
        "exchange": some([0, 1]),
        "transient": some([0, 1]),
        "transact": some([0, 3, 6]),
        "purge": some([0, 0, 0, 1]),
        "count": some([0, 2]),
    }
    faults = {name: some([0, 1, 1, 3]) for name in NODE_FAULTS}
    faults["eio"] = some([0, 0, 1])
    faults["flip"] = some([0, 0, 1])
    faults["wipe"] = some([0, 0, 0, 1])
    faults |= {name: 0 if calm else some([0, 1, 2]) for name in LINK_FAULTS}
    faults["ambush"] = some([1, 4, 12])
    faults["transfer_definitions"] = some([0, 1])
    faults["rule"] = some([0, 1])
    faults["nothing"] = 1
    long = random.random() < LONG_CHANCE
    faults["outage"] = 8 if long else 0
    tunables: dict[tuple[object, str], int] = {
        (queues.durable, "ENTRY_MESSAGES_MAX"): some([1, 4, 1024]),
        (queues.cold, "LOAD_MESSAGES"): some([1, 5, 2048]),
        (queues.durable, "SETTLE_BATCH"): some([1, 10, 4096]),
        (queues.live_log, "CHECKPOINT_ENTRIES"): some([1, 5, 30, 1000]),
        (queues.paged, "HOT_BYTES_FLOOR"): some([0, 1500, 64 * 1024]),
        (broker.log_host, "COLD_READ_BYTES"): some([1, 1000, 1 << 22]),
        (broker.cluster.catalog, "CHECKPOINT_CHANGES"): some([1, 5, 50, 50_000]),
    }
    return Swarm(
        nodes=some([1, 3, 3, 3, 3, 3, 3, 4, 5]),
        calm=calm,
        seconds=LONG_S if long else some([5.0, 10.0]),
        clients=some([2, 4]),
        kinds=("quorum", *random.sample(KINDS, some([1, 2]))),
        weights=weights,
        settle_weights=some([(1, 0, 0), (8, 2, 1), (4, 2, 2)]),
        faults=faults,
        moments=("confirmed", "confirmed", "settled", "delivered", "answered"),
        ambushes=("kill", "power", "all") if calm else ("kill", "power", "all", "isolate"),
        fault_s=some([0.7, 2.0]),
        pause_s=0.3 if long else some([0.05, 0.15]),
        sync_s=some([0.0005, 0.004, 0.02]),
        read_s=some([0.0005, 0.01]),
        delay_s=some([0.0, 0.001, 0.02]),
        hot_bytes=some([0, 3000, 1 << 26]),
        filler_bytes=some([(1,), (1, 30, 200), (1, 300, 3000)]),
        bursts=some([(1, 1, 3, 10), (1, 1, 3, 10), (1, 3, 30, 300)]),
        outages_s=OUTAGES_S if long else (),
        options=StoreOptions(
            wal_file_bytes=some([16, 64]) * 1024,
            free_bytes_min=0,
            reserve_bytes=8 * 1024,
            slack_files=some([0, 2]),
            spare_files=some([1, 2]),
        ),
        tunables=tunables,
    )


@contextmanager
def tuned(swarm: Swarm) -> Iterator[None]:
    """The thresholds of the code under test, small enough to be reached."""
    with ExitStack() as stack:
        for (owner, name), value in swarm.tunables.items():
            stack.enter_context(patch.object(owner, name, value))
        yield
