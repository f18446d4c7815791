"""A file of definitions, RabbitMQ's or ours: checked as a whole before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import bad_request
from broker.management import accounts
from broker.management.fields import short_text, table, truth
from broker.policies import InvalidPolicyError, Kind, Policy, parse_policy
from broker.vhost import RESERVED_PREFIX
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.node import Node
    from broker.protocol.tables import Table

ITEMS_MAX: Final = 1_000_000  # in one file; its size is limited too


@dataclass(frozen=True, slots=True)
class QueueItem:
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: Table


@dataclass(frozen=True, slots=True)
class ExchangeItem:
    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table


@dataclass(frozen=True, slots=True)
class BindingItem:
    vhost: str
    source: str
    destination_type: str
    destination: str
    key: str
    arguments: Table


@dataclass(frozen=True, slots=True)
class PolicyItem:
    vhost: str
    kind: Kind
    policy: Policy


class DefinitionsFile:
    """Of all vhosts, or of one (`vhost`), whose items need not name it. HttpError 400 if wrong."""

    def __init__(self, body: Mapping[str, Any], node: Node, vhost: str | None = None) -> None:
        self._body = body
        self._vhost = vhost
        self.new_vhosts: list[list[Any]] = []  # changes of broker.security.registry
        self.accounts: list[list[Any]] = []
        if vhost is None:
            self.new_vhosts += accounts.vhost_changes(self._items("vhosts"), node)
            self.accounts += accounts.user_changes(self._items("users"))
            self.accounts += accounts.permission_changes(self._items("permissions"))
            self.accounts += accounts.topic_changes(self._items("topic_permissions"))
        self.accounts += self._limits()
        self.exchanges = list(self._exchanges())
        self.queues = list(self._queues())
        self.bindings = list(self._bindings())
        self.policies = [*self._policies(), *self._operator_policies()]
        self.global_parameters = list(self._global_parameters())

    def vhosts(self) -> set[str]:
        """All that something is in."""
        items: list[Any] = [*self.exchanges, *self.queues, *self.bindings, *self.policies]
        return {item.vhost for item in items}

    def _items(self, section: str) -> list[dict[str, Any]]:
        items = self._body.get(section, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise bad_request(f"{section}: it must be a list of objects")
        if len(items) > ITEMS_MAX:
            raise bad_request(f"{section}: at most {ITEMS_MAX} items")
        return items

    def _vhost_of(self, item: Mapping[str, Any]) -> str:
        return self._vhost if self._vhost is not None else short_text(item, "vhost")

    def _exchanges(self) -> Iterator[ExchangeItem]:
        for item in self._items("exchanges"):
            name = short_text(item, "name")
            if not name or name.startswith(RESERVED_PREFIX):
                continue  # they are everywhere
            yield ExchangeItem(
                self._vhost_of(item),
                name,
                short_text(item, "type"),
                truth(item, "durable", default=True),
                truth(item, "auto_delete", default=False),
                truth(item, "internal", default=False),
                table(item),
            )

    def _queues(self) -> Iterator[QueueItem]:
        for item in self._items("queues"):
            name, arguments = short_text(item, "name"), table(item)
            if not name or name in INTERNAL:
                raise bad_request(f"queues: {name!r} is no name for a queue")
            kind = item.get("type")  # newer versions of RabbitMQ write it so
            if isinstance(kind, str) and kind in ("classic", "quorum", "stream"):
                arguments = {"x-queue-type": kind, **arguments}
            durable = truth(item, "durable", default=True)
            auto_delete = truth(item, "auto_delete", default=False)
            yield QueueItem(self._vhost_of(item), name, durable, auto_delete, arguments)

    def _bindings(self) -> Iterator[BindingItem]:
        for item in self._items("bindings"):
            source, kind = short_text(item, "source"), item.get("destination_type")
            if not source:
                continue  # of the default exchange: they come with the queues
            if kind not in ("queue", "exchange"):
                raise bad_request(f"bindings: {kind!r} is no destination_type")
            destination = short_text(item, "destination")
            key = short_text(item, "routing_key", "")
            vhost = self._vhost_of(item)
            yield BindingItem(vhost, source, kind, destination, key, table(item))

    def _policies(self) -> Iterator[PolicyItem]:
        for item in self._items("policies"):
            yield self._policy(item, item, "policy")

    def _operator_policies(self) -> Iterator[PolicyItem]:
        """They are parameters of a component, in RabbitMQ's files."""
        for item in self._items("parameters"):
            component, value = item.get("component"), item.get("value")
            if component == "operator_policy" and isinstance(value, dict):
                yield self._policy(item, value, "operator-policy")
            elif component not in ("vhost-limits", "operator_policy"):
                raise bad_request(f"parameters: component {component} not found")

    def _limits(self) -> Iterator[list[Any]]:
        for item in self._items("parameters"):
            if item.get("component") == "vhost-limits":
                yield from accounts.limit_changes(self._vhost_of(item), item.get("value"))

    def _policy(self, item: Mapping[str, Any], value: Mapping[str, Any], kind: Kind) -> PolicyItem:
        name = short_text(item, "name")
        try:
            return PolicyItem(self._vhost_of(item), kind, parse_policy(name, value, kind=kind))
        except InvalidPolicyError as error:
            raise bad_request(f"policy {name!r}: {error}") from None

    def _global_parameters(self) -> Iterator[tuple[str, Any]]:
        for item in self._items("global_parameters"):
            name = short_text(item, "name")
            if name != "internal_cluster_id":  # each cluster has its own
                yield name, item.get("value")
