"""A user, as connections and requests know them: one object as long as the user is there.

What the user may do is looked up here each time, and remembered until it changes: a change counts
for all who are logged in, from their next request on.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.security.passwords import NO_PASSWORD, PasswordHash
from broker.security.permissions import Action, Permission, TopicAction, TopicPermission

# RabbitMQ checks permissions on the default exchange, whose name is empty, under this name.
DEFAULT_EXCHANGE_ALIAS: Final = "amq.default"

# A worker touches a handful of names; this keeps even a large application's names hot while a
# client that invents names all day costs at most about a megabyte per user.
CACHED_DECISIONS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What requests of SQS clients are signed with. The secret is shown in no log."""

    secret: str = field(repr=False)
    made_ms: int


class User:
    """A user; `broker.security.registry` changes it."""

    __slots__ = (
        "_decisions",
        "_topic_decisions",
        "_topics",
        "access_keys",
        "channels",
        "connections",
        "limits",
        "name",
        "on_change",
        "password",
        "permissions",
        "tags",
    )

    def __init__(
        self,
        name: str,
        *,
        tags: Collection[str] = (),
        permissions: Mapping[str, Permission] | None = None,
        password: PasswordHash = NO_PASSWORD,
    ) -> None:
        self.name = name
        self.tags = frozenset(tags)
        self.permissions = dict(permissions or {})  # by vhost; changed by `permit`
        self.password = password
        self.access_keys: dict[str, AccessKey] = {}  # by id
        self.limits: dict[str, int] = {}  # such as max-connections
        self.connections = 0  # open on this node
        self.channels = 0
        self.on_change: list[Callable[[], None]] = []  # called when permissions have changed
        self._topics: dict[tuple[str, str], TopicPermission] = {}  # by vhost and exchange
        self._decisions: dict[tuple[str, Action, str], bool] = {}
        self._topic_decisions: dict[tuple[str, str, TopicAction, str], bool] = {}

    def __repr__(self) -> str:
        return f"User({self.name!r})"

    # What they may do

    def may_enter(self, vhost: str) -> bool:
        return vhost in self.permissions

    def may(self, vhost: str, action: Action, resource_name: str) -> bool:
        """Whether the user may do this to the queue or exchange of that name."""
        key = (vhost, action, resource_name)
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= CACHED_DECISIONS_MAX:
                self._decisions.clear()
            permission = self.permissions.get(vhost)
            name = resource_name or DEFAULT_EXCHANGE_ALIAS
            allowed = permission is not None and permission.allows(action, name)
            self._decisions[key] = allowed
        return allowed

    def may_use_key(self, vhost: str, exchange: str, action: TopicAction, key: str) -> bool:
        """Whether the user may publish with this key to a topic exchange, or bind with it.

        Where nothing is said about topics, everything is allowed.
        """
        topics = self._topics.get((vhost, exchange))
        if topics is None:
            return True
        asked = (vhost, exchange, action, key)
        allowed = self._topic_decisions.get(asked)
        if allowed is None:
            if len(self._topic_decisions) >= CACHED_DECISIONS_MAX:
                self._topic_decisions.clear()
            allowed = topics.allows(action, key, user=self.name, vhost=vhost)
            self._topic_decisions[asked] = allowed
        return allowed

    def topic_permissions(self) -> dict[tuple[str, str], TopicPermission]:
        """By vhost and exchange."""
        return dict(self._topics)

    # Changes

    def permit(self, vhost: str, permission: Permission | None) -> None:
        """None: the user may not even enter the vhost."""
        if permission is None:
            self.permissions.pop(vhost, None)
        else:
            self.permissions[vhost] = permission
        self._changed()

    def permit_topics(self, vhost: str, exchange: str, topics: TopicPermission | None) -> None:
        """None: nothing more is said about topics there."""
        if topics is None:
            self._topics.pop((vhost, exchange), None)
        else:
            self._topics[vhost, exchange] = topics
        self._changed()

    def forget_vhost(self, vhost: str) -> None:
        self.permissions.pop(vhost, None)
        self._topics = {where: each for where, each in self._topics.items() if where[0] != vhost}
        self._changed()

    def revoke(self) -> None:
        """The user is no more: who still holds this object may do nothing."""
        self.tags = frozenset()
        self.password = NO_PASSWORD
        self.clear()

    def clear(self) -> None:
        """Forget all permissions, access keys and limits."""
        self.permissions.clear()
        self.access_keys.clear()
        self._topics.clear()
        self.limits.clear()
        self._changed()

    def _changed(self) -> None:
        self._decisions.clear()
        self._topic_decisions.clear()
        for act in self.on_change:
            act()
