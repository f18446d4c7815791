"""Kinds of queues that a run may have."""

from random import Random

KINDS = (
    "quorum",
    "lonely",  # one client consumes, and only acks
    "classic",  # on one node
    "ttl",
    "short",
    "loose",  # consumers may do without acks
    "dlx",
    "dlx_classic",  # its dead letters go to a queue that lives on one node
    "limited",
    "delayed",
    "priority",
    "groups",
    "dedup",
    "leased",
    "counted",  # one client alone publishes and gets
    "ruled",  # policies say where its dead letters go
)
# Where dead letters go, by kind.
DEAD = {"dlx": "dead", "limited": "dead", "ruled": "dead", "dlx_classic": "dead-classic"}
# Of these nothing dies of being delivered too often.
LENIENT = frozenset({"leased", "ruled", "dlx", "dlx_classic"})
LEASES_MS = (700, 1500)


def arguments_of(kind: str, random: Random) -> dict[str, object]:
    arguments: dict[str, object] = {"x-queue-type": "quorum"}
    if kind in ("classic", "dead-classic"):
        arguments["x-queue-type"] = "classic"
    arguments |= {
        "ttl": {"x-message-ttl": random.choice([50, 2000])},
        "short": {"x-max-length": random.choice([1, 20])},
        "limited": {"x-delivery-limit": 2},
        "delayed": {"x-message-delay": random.choice([0, 100])},
        "priority": {"x-max-priority": 3},
        "groups": {"x-message-groups": True},
        "dedup": {"x-dedup-window": random.choice([2000, 300_000])},
        "leased": {"x-visibility-timeout": random.choice(LEASES_MS)},
    }.get(kind, {})
    if kind in DEAD and kind != "ruled":
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD[kind]}
    if kind in LENIENT:
        arguments["x-delivery-limit"] = -1
    return arguments
