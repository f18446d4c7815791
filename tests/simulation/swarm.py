"""Which features and rates a run has: drawn from its seed, so that runs differ in kind."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import broker.journal
import broker.log_host
import queues.cold
import queues.durable
import queues.live_log
import queues.paged
from queues.storage.options import StoreOptions
from tests.simulation.kinds import KINDS


@dataclass(frozen=True)
class Swarm:
    lives: int
    steps: int
    queues: int
    endings: tuple[str, ...]
    weights: dict[str, int]  # of each action
    kinds: tuple[str, ...]  # of queues
    options: StoreOptions
    hot_bytes: int
    read_delays_s: list[float]
    flush_chance: float  # the store writes after a step
    settle_chance: float  # what it says about that is heard
    filler_bytes: tuple[int, ...]
    own_ttl_chance: float  # a message brings its own
    delay_chance: float
    id_chance: float
    group_chance: float
    reorders: bool  # policies change the order of delivery
    flips: bool  # a bit of a closed file, before the last life
    tunables: dict[tuple[object, str], int]


def draw(random: Random, kinds: tuple[str, ...] | None) -> Swarm:
    some = random.choice
    weights = {
        "publish": some([10, 20]),
        "consume": some([2, 4]),
        "settle": some([4, 10, 20]),
        "get": some([0, 3]),
        "purge": some([0, 1]),
        "disconnect": some([0, 1, 3]),
        "barrier": some([1, 4]),
        "declare": some([2, 4]),
        "delete": some([0, 1]),
        "exchange": some([0, 2]),
        "bind": some([0, 3]),
        "sleep": some([1, 4]),
        "reclaim": some([0, 2, 5]),
        "check_space": some([0, 1]),
        "fill_disk": some([0, 0, 1]),
        "reschedule": some([0, 2]),
        "cancel": some([0, 2]),
        "extend": some([0, 2]),
        "configure": some([0, 0, 1]),
    }
    entry_messages = some([1, 4, 1024])
    tunables: dict[tuple[object, str], int] = {
        (queues.durable, "ENTRY_MESSAGES_MAX"): entry_messages,
        (queues.cold, "LOAD_MESSAGES"): some([1, 5, 2048]),
        (queues.cold, "LOAD_ENTRIES"): some([1, 2, 64]),
        (queues.durable, "SETTLE_BATCH"): some([1, 10, 4096]),
        (queues.live_log, "CHECKPOINT_ENTRIES"): some([1, 5, 30]),
        (queues.live_log, "CHECKPOINT_BYTES"): some([500, 4000, 1 << 22]),
        (queues.paged, "HOT_BYTES_FLOOR"): some([0, 1500, 64 * 1024]),
        (broker.log_host, "COLD_READ_BYTES"): some([1, 1000, 1 << 22]),
        (broker.journal, "CHECKPOINT_CHANGES"): some([1, 4, 20, 50_000]),
    }
    chosen = kinds or tuple(random.sample(KINDS, some([1, 2, 4, len(KINDS)])))
    return Swarm(
        lives=random.randint(2, 5),
        steps=some([20, 60, 120]),
        queues=some([1, 2, 5]),
        endings=tuple(random.choices(["crash", "crash", "kill", "stop", "power", "eio"], k=3)),
        weights=weights,
        kinds=chosen,
        own_ttl_chance=some([0.0, 0.05]),
        delay_chance=some([0.0, 0.0, 0.3]),
        id_chance=some([0.0, 0.5]),
        group_chance=0.8 if "groups" in chosen else some([0.0, 0.5]),
        reorders=some([False, True]),
        options=StoreOptions(
            wal_file_bytes=some([8, 16, 64]) * 1024,
            free_bytes_min=0,
            reserve_bytes=some([5, 7]) * 1024,
            slack_files=some([0, 2]),
            spare_files=some([1, 2]),
        ),
        hot_bytes=some([0, 0, 3000, 1 << 26]),
        read_delays_s=some([[0.0], [0.0, 0.003], [0.0, 0.02, 0.2]]),
        flush_chance=some([0.2, 0.6, 1.0]),
        settle_chance=some([0.3, 0.8, 1.0]),
        filler_bytes=some([(1,), (1, 30, 200), (1, 300, 3000)]),
        flips=random.random() < 0.2,
        tunables=tunables,
    )


@contextmanager
def tuned(swarm: Swarm, low_messages: int) -> Iterator[None]:
    """The thresholds of the code under test, small enough to be reached."""
    with ExitStack() as stack:
        for (owner, name), value in swarm.tunables.items():
            stack.enter_context(patch.object(owner, name, value))
        stack.enter_context(patch.object(queues.durable, "LOW_MESSAGES", low_messages))
        yield
