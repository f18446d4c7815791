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
    "limited",
    "delayed",
    "priority",
    "groups",
    "dedup",
)


def arguments_of(kind: str, random: Random) -> dict[str, object]:
    arguments: dict[str, object] = {"x-queue-type": "classic" if kind == "classic" else "quorum"}
    arguments |= {
        "ttl": {"x-message-ttl": random.choice([50, 2000])},
        "short": {"x-max-length": random.choice([1, 20])},
        "limited": {"x-delivery-limit": 2},
        "delayed": {"x-message-delay": random.choice([0, 100])},
        "priority": {"x-max-priority": 3},
        "groups": {"x-message-groups": True},
        "dedup": {"x-dedup-window": random.choice([2000, 300_000])},
    }.get(kind, {})
    if kind in ("dlx", "limited"):
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    return arguments
