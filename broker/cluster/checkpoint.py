"""The state of the cluster as changes that make it, and a state replaced by another one's.

What is the same in both is not touched: a queue that stays keeps its object on this node, with its
consumers and all that is on its way.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, cast

from broker.cluster.placement import Placement
from broker.cluster.state import State
from broker.policies import Policy
from broker.policy_store import change_of
from broker.registry.state import CHECKPOINT_KINDS as SCHEMA_KINDS
from broker.vhost import RESERVED_PREFIX, VHost
from exchanges.exchange import Exchange
from exchanges.values import canonical
from queues.seams import AnyQueue

_TABLES: Final = (
    *(
        "global-parameter",
        "node",
        "removed-node",
        "next-node",
        "booted",
        "members",
        "rebalance",
        "asked",
    ),
    *SCHEMA_KINDS,
)
# Users, vhosts and so on, in an order that works.
DEFINING: Final = (
    *("vhost", "vhost-limit", "user", "access-key", "permission", "topic-permission"),
    *("user-limit", "seeded"),
)
_POLICIES: Final = frozenset({"policy", "operator-policy"})


def changes_of(state: State) -> Iterator[list[Any]]:
    """Changes that make the whole state from nothing, in an order that works."""
    yield from state.registry.changes()
    for vhost in state.vhosts.values():
        yield from _exchanges(vhost)
        yield from _queues(state, vhost)
        yield from _bindings(vhost)
        for kind, policies in vhost.policies.sets.items():
            for policy in policies:
                yield [kind, vhost.name, *change_of(policy)]
    yield from state.global_parameters.changes()
    yield from state.schemas.changes()
    yield from state.nodes.changes()
    for node, boot in state.boots.items():
        yield ["booted", node, boot]
    for uid, members in state.members.items():
        yield ["members", uid, list(members)]
    for (uid, group), node in state.transfers.items():
        yield ["lead", uid, group, node]
    if state.rebalancing:
        yield ["rebalance", True]
    for node, asked in state.asked.items():
        results = [
            [number] if error is None else [number, error.code, error.text]
            for number, error in asked.results.items()
        ]
        yield ["asked", node, asked.boot, asked.last, results]


def _exchanges(vhost: VHost) -> Iterator[list[Any]]:
    for exchange in vhost.exchanges.values():
        if exchange.name and not exchange.name.startswith(RESERVED_PREFIX):
            yield [
                *("exchange", vhost.name, exchange.name, exchange.type, exchange.auto_delete),
                *(exchange.internal, exchange.arguments, exchange.durable),
            ]


def _queues(state: State, vhost: VHost) -> Iterator[list[Any]]:
    for queue in vhost.queues.values():
        yield [
            *("queue", vhost.name, queue.name, queue.uid, queue.auto_delete),
            *(queue.options.type, dict(queue.arguments), queue.durable),
            _owner_of(queue),
            state.placed[queue.uid].placement.encode(),
            dict(queue.settings),
        ]


def _bindings(vhost: VHost) -> Iterator[list[Any]]:
    for exchange in vhost.exchanges.values():
        if exchange is vhost.default:
            continue  # made with the queues
        for binding in exchange.bindings():
            destination = cast("AnyQueue | Exchange", binding.destination)
            to_exchange = isinstance(destination, Exchange)
            yield [
                *("binding", vhost.name, exchange.name),
                *("exchange" if to_exchange else "queue", destination.name),
                *(binding.key, dict(binding.arguments)),
                None if isinstance(destination, Exchange) else _owner_of(destination),
            ]


def _owner_of(queue: AnyQueue) -> list[int] | None:
    owner = cast("tuple[int, int, int] | None", queue.owner)
    return None if owner is None else list(owner)


def replace_state(state: State, wanted: Iterable[list[Any]]) -> None:
    """Have `state` be what these changes make from nothing."""
    by_kind: dict[str, list[list[Any]]] = {}
    for change in wanted:
        by_kind.setdefault(change[0], []).append(change)
    state.registry.replace(change for kind in DEFINING for change in by_kind.get(kind, []))
    _drop_queues(state, by_kind.get("queue", []))
    _drop_exchanges(state, by_kind.get("exchange", []))
    state.nodes.clear()
    state.global_parameters.clear()
    state.schemas.clear()
    state.boots.clear()
    state.asked.clear()
    state.members.clear()
    state.transfers.clear()
    state.rebalancing = False
    for kind in _TABLES:
        _make(state, by_kind.get(kind, []))
    # What went with the last of its bindings just now is made again.
    missing = _missing(by_kind.get("exchange", []), _of_all(state, _exchanges))
    _make(state, missing)
    for change in by_kind.get("queue", []):
        _make_queue(state, change)
    _make(state, by_kind.get("lead", []))
    _rebind(state, by_kind.get("binding", []))
    _replace_policies(state, [c for kind in _POLICIES for c in by_kind.get(kind, [])])


def _make(state: State, changes: Iterable[list[Any]]) -> None:
    for change in changes:
        result = state.apply(change)
        assert result is None, f"{change[0]} of a checkpoint: {result}"


def _of_all(state: State, changes: Any) -> list[list[Any]]:
    return [change for vhost in state.vhosts.values() for change in changes(vhost)]


def _key(change: list[Any]) -> Hashable:
    return canonical(change)


def _missing(wanted: Iterable[list[Any]], there: Iterable[list[Any]]) -> list[list[Any]]:
    known = {_key(change) for change in there}
    return [change for change in wanted if _key(change) not in known]


def _drop_queues(state: State, wanted: list[list[Any]]) -> None:
    stay = {(vhost, name): uid for _, vhost, name, uid, *_ in wanted}
    for vhost in state.vhosts.values():
        for queue in list(vhost.queues.values()):
            if stay.get((vhost.name, queue.name)) != queue.uid:
                state.drop_queue(vhost, queue)


def _drop_exchanges(state: State, wanted: list[list[Any]]) -> None:
    for _, vhost_name, name, *_ in _missing(_of_all(state, _exchanges), wanted):
        vhost = state.vhosts[vhost_name]
        exchange = vhost.exchanges.get(name)
        if exchange is not None:  # else it went with the last of its bindings
            vhost.drop_exchange(exchange)


def _make_queue(state: State, change: list[Any]) -> None:
    vhost, name, uid = change[1:4]
    placement, settings = Placement.decode(change[9]), dict(*change[10:])
    placed = state.placed.get(uid)
    if placed is None:
        _make(state, [change])
        return
    if placed.placement != placement:
        state.replace(uid, placement)
    if state.vhosts[vhost].queues[name].settings != settings:
        _make(state, [["settings", vhost, name, uid, settings]])


def _rebind(state: State, wanted: list[list[Any]]) -> None:
    there = _of_all(state, _bindings)
    for _, vhost_name, source, what, name, key, arguments, _ in _missing(there, wanted):
        vhost = state.vhosts[vhost_name]
        destinations: Any = vhost.queues if what == "queue" else vhost.exchanges
        vhost.remove_binding(vhost.exchanges[source], destinations[name], key, arguments)
    _make(state, _missing(wanted, there))


def _replace_policies(state: State, wanted: list[list[Any]]) -> None:
    for vhost in state.vhosts.values():
        for policies in vhost.policies.sets.values():
            for policy in list(policies):
                policies.remove(policy.name)
    for kind, vhost_name, name, *details in wanted:
        policies = state.vhost(vhost_name).policies.sets[kind]
        policies.put(Policy.make(name, *details))
    for vhost in state.vhosts.values():
        vhost.policies.apply_to_all()
