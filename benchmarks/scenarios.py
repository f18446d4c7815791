"""The table of scenarios: what each one declares, publishes and consumes.

Queues are declared with an explicit `x-queue-type`; a durable scenario declares them durable and
publishes with delivery mode 2, a transient one uses neither.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Routing = Literal["direct", "fanout", "topic"]
QueueType = Literal["classic", "quorum"]

# Published minus consumed never exceeds this, so that no broker is measured while it pages out.
BACKLOG_MAX = 20_000
TOPIC_KEYS = 50_000
# Correlation ids in turn: more than a broker would sensibly remember.
DISTINCT_PROPERTIES = 12_800
_KEY_SEED = 20_240_229


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadScenario:
    """One load, the same for every broker."""

    name: str
    about: str
    body_bytes: int
    durable: bool = False
    queue_type: QueueType = "classic"
    confirm_window: int = 0
    """Unconfirmed messages per publisher; 0 publishes without confirms."""
    prefetch: int = 0
    """0 consumes with automatic acks."""
    ack_every: int = 1
    """With prefetch: 1 acks each delivery, more acks that many at a time (multiple)."""
    routing: Routing = "direct"
    queues: int = 1
    publishers: int = 1
    consumers: int = 1
    bindings: int = 0
    """Topic bindings, dealt out over the queues."""
    rate: int = 0
    """Messages per second of all publishers together; 0 is flat out."""
    consume_channel: int = 1
    """Publishers use channel 1; on another one, a broker cannot hand frames on as they came."""
    full_properties: bool = False
    """Publish with what a task library sets (headers, a new correlation id), not just a mode."""

    @property
    def copies(self) -> int:
        """Deliveries that one publish causes."""
        return self.queues if self.routing == "fanout" else 1

    @property
    def batch(self) -> int:
        """Messages per write: one at a time at a fixed rate, else what a busy client coalesces."""
        return 1 if self.rate or self.confirm_window == 1 else 64

    @property
    def sample_every(self) -> int:
        """Latency is read from every delivery at a fixed rate, else from some (it costs CPU)."""
        return 1 if self.rate or self.confirm_window == 1 else 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleScenario:
    """Connections that do nothing."""

    name: str
    about: str
    connections: int
    settle_s: float = 2.0
    """Between opening the last connection and measuring."""
    idle_s: float = 10.0
    heartbeat_s: int = 60


Scenario = LoadScenario | IdleScenario


def topic_binding(index: int) -> str:
    """Binding number `index`; half of them with `*`, half with `#`."""
    return f"k{index:04}.*.load" if index % 2 else f"k{index:04}.#"


def topic_keys(bindings: int) -> list[str]:
    """Equally long keys in a fixed random order, each matching exactly one binding."""
    keys = [f"k{index % bindings:04}.m{index:06}.load" for index in range(TOPIC_KEYS)]
    random.Random(_KEY_SEED).shuffle(keys)
    return keys


# The idle scenario comes first: its memory growth would hide in what a load has left allocated.
SCENARIOS: tuple[Scenario, ...] = (
    IdleScenario(
        name="idle-1000",
        about="1,000 idle connections with a channel each: memory and CPU",
        connections=1000,
    ),
    LoadScenario(name="16B-autoack", about="no confirms, automatic acks", body_bytes=16),
    LoadScenario(
        name="16B-confirm-autoack",
        about="confirms, automatic acks",
        body_bytes=16,
        confirm_window=1000,
    ),
    LoadScenario(
        name="16B-ack-each", about="no confirms, each delivery acked", body_bytes=16, prefetch=500
    ),
    LoadScenario(
        name="16B-confirm-ack",
        about="confirms, acks of 125 at a time",
        body_bytes=16,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(name="1K-autoack", about="no confirms, automatic acks", body_bytes=1024),
    LoadScenario(
        name="1K-ack-each", about="no confirms, each delivery acked", body_bytes=1024, prefetch=500
    ),
    LoadScenario(
        name="1K-ack-multiple",
        about="no confirms, acks of 125 at a time",
        body_bytes=1024,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="1K-confirm-ack",
        about="confirms, acks of 125 at a time",
        body_bytes=1024,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="1K-confirm-ack-client",
        about="1K-confirm-ack with a real client's properties and headers, consumed on channel 2",
        body_bytes=1024,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
        consume_channel=2,
        full_properties=True,
    ),
    LoadScenario(
        name="1K-confirm-ack-durable",
        about="1K-confirm-ack on a durable queue with persistent messages",
        body_bytes=1024,
        durable=True,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="16B-confirm-ack-durable",
        about="small persistent messages on a durable queue",
        body_bytes=16,
        durable=True,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="1K-confirm-ack-quorum",
        about="1K-confirm-ack on a quorum queue",
        body_bytes=1024,
        durable=True,
        queue_type="quorum",
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="16B-confirm-ack-quorum",
        about="small messages on a quorum queue",
        body_bytes=16,
        durable=True,
        queue_type="quorum",
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
    ),
    LoadScenario(
        name="1K-one-by-one-quorum",
        about="each message confirmed before the next is published, on a quorum queue",
        body_bytes=1024,
        durable=True,
        queue_type="quorum",
        confirm_window=1,
        prefetch=500,
    ),
    LoadScenario(
        name="1K-200-queues-quorum",
        about="200 publishers, 200 quorum queues, 200 consumers; confirms, acks of 16 at a time",
        body_bytes=1024,
        durable=True,
        queue_type="quorum",
        confirm_window=64,
        prefetch=64,
        ack_every=16,
        queues=200,
        publishers=200,
        consumers=200,
    ),
    LoadScenario(
        name="16B-fanout-5",
        about="one publisher, a fanout exchange, five queues",
        body_bytes=16,
        routing="fanout",
        queues=5,
        consumers=5,
    ),
    LoadScenario(
        name="1K-fanout-5",
        about="the same with 1 KB, confirms and acks of 125 at a time",
        body_bytes=1024,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
        routing="fanout",
        queues=5,
        consumers=5,
    ),
    LoadScenario(
        name="16B-10x10",
        about="ten publishers, ten queues, ten consumers; no confirms, automatic acks",
        body_bytes=16,
        queues=10,
        publishers=10,
        consumers=10,
    ),
    LoadScenario(
        name="1K-10x10",
        about="the same with 1 KB, confirms and acks of 125 at a time",
        body_bytes=1024,
        confirm_window=1000,
        prefetch=500,
        ack_every=125,
        queues=10,
        publishers=10,
        consumers=10,
    ),
    LoadScenario(
        name="topic-1000",
        about="a topic exchange with 1,000 bindings, 50,000 distinct keys, ten queues",
        body_bytes=16,
        routing="topic",
        queues=10,
        bindings=1000,
    ),
    LoadScenario(
        name="1K-latency-2000",
        about="2,000 messages/s, confirms, each delivery acked",
        body_bytes=1024,
        confirm_window=1000,
        prefetch=500,
        rate=2000,
    ),
    LoadScenario(
        name="1K-latency-2000-durable",
        about="the same on a durable queue with persistent messages",
        body_bytes=1024,
        durable=True,
        confirm_window=1000,
        prefetch=500,
        rate=2000,
    ),
    LoadScenario(
        name="1K-latency-2000-quorum",
        about="the same on a quorum queue",
        body_bytes=1024,
        durable=True,
        queue_type="quorum",
        confirm_window=1000,
        prefetch=500,
        rate=2000,
    ),
)
