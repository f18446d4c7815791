"""Kinds of queues in a simulated node, and what a policy may change of them."""

from random import Random

from broker.protocol.tables import Table

KINDS = (
    "classic",
    "quorum",
    "priority",
    "ttl",
    "short",
    "full",
    "dlx",
    "limited",
    "delayed",
    "retry",
    "lease",
    "groups",
    "dedup",
    "aging",
    "paced",
)
# Messages leave in the order in which they came, but for delayed ones.
IN_ORDER = frozenset(KINDS) - {"priority", "aging", "groups", "paced"}
# Nothing is dropped by itself, which may happen behind the note of what was never delivered.
LASTING = frozenset(KINDS) - {"ttl", "short"}


def arguments_of(kind: str, target: str, random: Random) -> Table:
    """Of a new queue, whose dead letters go to `target` if anywhere."""
    arguments: Table = {
        "classic": {"x-queue-type": "classic"},
        "quorum": {},
        "priority": {"x-max-priority": 3, "x-queue-type": "classic"},
        "ttl": {"x-message-ttl": random.choice([5, 500])},
        "short": {"x-max-length": random.choice([1, 5, 20])},
        "full": {"x-max-length": 10, "x-overflow": "reject-publish"},
        "dlx": {},
        "limited": {"x-delivery-limit": 1, "x-queue-type": "quorum"},
        "delayed": {"x-message-delay": random.choice([1, 50, 2000])},
        "retry": _retry(random) | {"x-queue-type": random.choice(["classic", "quorum"])},
        "lease": {"x-visibility-timeout": random.choice([3, 300])},
        "groups": {"x-message-groups": True},
        "dedup": {"x-dedup-window": random.choice([30, 5000, 300_000])},
        "aging": {"x-max-priority": 3, "x-priority-aging-ms": random.choice([1, 300])},
        "paced": {"x-redelivery-rate": random.choice([2, 20])},
    }[kind]
    if kind in ("lease", "groups", "delayed", "paced") and random.random() < 0.5:
        arguments |= _retry(random)
    if kind in ("dlx", "ttl", "short", "limited"):
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    return arguments


def _retry(random: Random) -> Table:
    return {
        "x-retry-delay": random.choice([1, 30, 400, 4000]),
        "x-retry-backoff": random.choice([1, 2]),
        "x-retry-max-delay": 5000,
    }


def with_policy(arguments: Table, random: Random, *, reorder: bool) -> Table:
    """The arguments of a queue as some policy changes them."""
    changed = {**arguments, **_policy(random, reorder=reorder)}
    if not changed.get("x-max-priority"):
        changed.pop("x-priority-aging-ms", None)
    return changed


def _policy(random: Random, *, reorder: bool) -> Table:
    changes: list[Table] = [
        {},
        {"x-message-delay": random.choice([0, 20, 2000])},
        {"x-retry-delay": random.choice([0, 20, 500])},
        {"x-visibility-timeout": random.choice([10, 1000])},
        {"x-redelivery-rate": random.choice([0, 1000])},
        {"x-dedup-window": random.choice([0, 50, 5000])},
    ]
    if reorder:
        orders: list[Table] = [
            {"x-message-groups": True, "x-max-priority": 0},
            {"x-message-groups": False, "x-max-priority": 3},
            {"x-message-groups": False, "x-max-priority": 3, "x-priority-aging-ms": 100},
            {"x-message-groups": False, "x-max-priority": 0},
        ]
        changes = [*changes, *orders]
    return random.choice(changes)
