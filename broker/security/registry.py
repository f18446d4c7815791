"""All users, vhosts, permissions and limits of a node, and every change that can be made to them.

Changes are arrays, as they are recorded (see broker.journal) and agreed on (broker.cluster.state):

    ["user", name, hash, algorithm, tags]                     ["-user", name]
    ["vhost", name, uid, members, details]                    ["-vhost", name]
    ["access-key", user, id, secret, time made in ms]         ["-access-key", user, id]
    ["permission", vhost, user, configure, write, read]       ["-permission", vhost, user]
    ["topic-permission", vhost, user, exchange, write, read]
    ["-topic-permission", vhost, user, exchange, or null for all]
    ["user-limit", user, name, number]                        ["-user-limit", user, name]
    ["vhost-limit", vhost, name, number]                      ["-vhost-limit", vhost, name]
    ["seed", "user" or "vhost", name, changes]   made if that name was never seeded before
    ["seeded", "user" or "vhost", name]          in checkpoints

The uid of a vhost is new each time that it is made, empty for those of the configuration; members
are the nodes of the cluster at that time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from broker.journal import encode_change
from broker.protocol.errors import not_found, precondition_failed
from broker.security.passwords import PasswordHash
from broker.security.permissions import Permission, TopicPermission
from broker.security.user import AccessKey, User

USERS_MAX: Final = 50_000  # some KB each
VHOSTS_MAX: Final = 10_000  # each with its exchanges, groups and transactions
TAGS_MAX: Final = 32
KEYS_MAX: Final = 10  # access keys of a user: one in use, its successor, and some
NAME_BYTES_MAX: Final = 255
USER_LIMITS: Final = ("max-connections", "max-channels")
VHOST_LIMITS: Final = ("max-connections", "max-queues")
LIMIT_MAX: Final = 2**31 - 1

CHANGES: Final = frozenset(
    {
        *("user", "-user", "vhost", "-vhost", "permission", "-permission"),
        *("access-key", "-access-key"),
        *("topic-permission", "-topic-permission", "user-limit", "-user-limit"),
        *("vhost-limit", "-vhost-limit", "seed", "seeded"),
    }
)


class AnyVHost(Protocol):
    """A virtual host, as far as this goes."""

    name: str
    uid: bytes
    members: tuple[int, ...]
    details: dict[str, Any]
    limits: dict[str, int]


class Hosts(Protocol):
    """Makes and ends virtual hosts (broker.node.Node)."""

    def open_vhost(self, name: str, uid: bytes, members: tuple[int, ...]) -> AnyVHost: ...
    def drop_vhost(self, name: str) -> None: ...
    def user_gone(self, user: User) -> None: ...


class Registry:
    """Nothing here awaits. Raises ChannelError for what cannot be done."""

    def __init__(self, vhosts: Mapping[str, AnyVHost], hosts: Hosts) -> None:
        self.users: dict[str, User] = {}
        self.seeded: set[tuple[str, str]] = set()
        self.record: Callable[..., None] = lambda *_: None  # until there is a journal
        self.on_change: list[Callable[[], None]] = []  # of limits, and of who there is
        self._key_owners: dict[str, str] = {}
        self._vhosts = vhosts
        self._hosts = hosts
        self._handlers: Final[dict[str, Callable[..., None]]] = {
            "user": self._put_user,
            "-user": self._delete_user,
            "access-key": self._add_key,
            "-access-key": self._delete_key,
            "vhost": self._put_vhost,
            "-vhost": self._delete_vhost,
            "permission": self._permit,
            "-permission": self._forbid,
            "topic-permission": self._permit_topics,
            "-topic-permission": self._forbid_topics,
            "user-limit": self._limit_user,
            "-user-limit": self._unlimit_user,
            "vhost-limit": self._limit_vhost,
            "-vhost-limit": self._unlimit_vhost,
            "seed": self._seed,
            "seeded": lambda kind, name: self.seeded.add((kind, name)),
        }
        assert self._handlers.keys() == CHANGES

    def apply(self, change: Iterable[Any]) -> None:
        """Make a change. Making it twice changes nothing more."""
        kind, *details = change
        encode_change([kind, *details])  # what cannot be written is refused before it is made
        self._handlers[kind](*details)
        self.record(kind, *details)
        for act in self.on_change:
            act()

    def changes(self) -> Iterator[list[Any]]:
        """Those that make all of it from nothing."""
        for vhost in self._vhosts.values():
            yield ["vhost", vhost.name, vhost.uid, list(vhost.members), vhost.details]
            for name, number in vhost.limits.items():
                yield ["vhost-limit", vhost.name, name, number]
        for user in self.users.values():
            yield from _changes_of(user)
        for kind, name in sorted(self.seeded):
            yield ["seeded", kind, name]

    # Users

    def user(self, name: str) -> User:
        found = self.users.get(name)
        if found is None:
            raise not_found(f"no user '{name}'")
        return found

    def _put_user(self, name: str, text: str, algorithm: str, tags: list[str]) -> None:
        _check_name("user", name)
        if len(tags) > TAGS_MAX or any(len(tag.encode()) > NAME_BYTES_MAX for tag in tags):
            raise precondition_failed(f"more than {TAGS_MAX} tags, or one that is too long")
        try:
            password = PasswordHash.parse(algorithm, text)
        except ValueError as error:
            raise precondition_failed(f"the password hash is {error}") from None
        user = self.users.get(name)
        if user is None:
            if len(self.users) >= USERS_MAX:
                raise precondition_failed(f"there are {USERS_MAX} users already")
            user = self.users[name] = User(name)
        user.password = password
        user.tags = frozenset(tags)

    def _delete_user(self, name: str) -> None:
        user = self.users.pop(name, None)
        if user is not None:
            for key_id in user.access_keys:
                del self._key_owners[key_id]
            user.revoke()
            self._hosts.user_gone(user)

    # Access keys

    def owner_of(self, key_id: str) -> User | None:
        """Whose access key it is."""
        user = self.users.get(self._key_owners.get(key_id, ""))
        return user if user is not None and key_id in user.access_keys else None

    def _add_key(self, user: str, key_id: str, secret: str, made_ms: int) -> None:
        found = self.user(user)
        if self.owner_of(key_id) not in (None, found):
            raise precondition_failed(f"there is an access key '{key_id}' already")
        if len(found.access_keys) >= KEYS_MAX and key_id not in found.access_keys:
            raise precondition_failed(f"user '{user}' has {KEYS_MAX} access keys already")
        found.access_keys[key_id] = AccessKey(secret, made_ms)
        self._key_owners[key_id] = user

    def _delete_key(self, user: str, key_id: str) -> None:
        found = self.users.get(user)
        if found is not None and found.access_keys.pop(key_id, None) is not None:
            del self._key_owners[key_id]

    # Permissions

    def _permit(self, vhost: str, user: str, configure: str, write: str, read: str) -> None:
        found = self.user(user)
        self._vhost(vhost)
        found.permit(vhost, Permission(configure, write, read))

    def _forbid(self, vhost: str, user: str) -> None:
        found = self.users.get(user)
        if found is not None:
            found.permit(vhost, None)

    def _permit_topics(self, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
        found = self.user(user)
        self._vhost(vhost)
        if len(exchange.encode()) > NAME_BYTES_MAX:
            raise precondition_failed("the name of an exchange has 255 bytes at most")
        found.permit_topics(vhost, exchange, TopicPermission(write, read))

    def _forbid_topics(self, vhost: str, user: str, exchange: str | None) -> None:
        found = self.users.get(user)
        if found is None:
            return
        for where, name in found.topic_permissions():
            if where == vhost and exchange in (name, None):
                found.permit_topics(where, name, None)

    # Virtual hosts

    def _vhost(self, name: str) -> AnyVHost:
        vhost = self._vhosts.get(name)
        if vhost is None:
            raise not_found(f"no vhost '{name}'")
        return vhost

    def _put_vhost(
        self, name: str, uid: bytes, members: list[int], details: dict[str, Any]
    ) -> None:
        _check_name("vhost", name)
        vhost = self._vhosts.get(name)
        if vhost is None:
            if len(self._vhosts) >= VHOSTS_MAX:
                raise precondition_failed(f"there are {VHOSTS_MAX} vhosts already")
            vhost = self._hosts.open_vhost(name, uid, tuple(members))
        vhost.details = dict(details)

    def _delete_vhost(self, name: str) -> None:
        if name in self._vhosts:
            self._hosts.drop_vhost(name)
        for user in self.users.values():
            user.forget_vhost(name)

    # Limits

    def _limit_user(self, user: str, name: str, number: int) -> None:
        _check_limit(name, number, USER_LIMITS)
        self.user(user).limits[name] = number

    def _unlimit_user(self, user: str, name: str) -> None:
        self.user(user).limits.pop(name, None)

    def _limit_vhost(self, vhost: str, name: str, number: int) -> None:
        _check_limit(name, number, VHOST_LIMITS)
        self._vhost(vhost).limits[name] = number

    def _unlimit_vhost(self, vhost: str, name: str) -> None:
        self._vhost(vhost).limits.pop(name, None)

    # What the configuration brings in

    def _seed(self, kind: str, name: str, changes: list[list[Any]]) -> None:
        """Once for each name: what was deleted or changed since does not come back."""
        if (kind, name) in self.seeded:
            return
        self.seeded.add((kind, name))
        if name in (self.users if kind == "user" else self._vhosts):
            return
        for wanted, *details in changes:
            if wanted != "permission" or details[0] in self._vhosts:
                self._handlers[wanted](*details)

    # All of it at once

    def replace(self, wanted: Iterable[list[Any]]) -> None:
        """Be what these changes make from nothing; objects of those who stay are kept."""
        wanted = list(wanted)
        users = {name for kind, name, *_ in wanted if kind == "user"}
        uids = {change[1]: change[2] for change in wanted if change[0] == "vhost"}
        for vhost in list(self._vhosts.values()):
            if uids.get(vhost.name) == vhost.uid:
                vhost.limits.clear()
            else:
                self._delete_vhost(vhost.name)
        for name in self.users.keys() - users:
            self._delete_user(name)
        for user in self.users.values():
            user.clear()
        self._key_owners.clear()
        self.seeded.clear()
        for kind, *details in wanted:
            self._handlers[kind](*details)
        for act in self.on_change:
            act()


def _changes_of(user: User) -> Iterator[list[Any]]:
    yield ["user", user.name, user.password.text, user.password.algorithm, sorted(user.tags)]
    for key_id, key in user.access_keys.items():
        yield ["access-key", user.name, key_id, key.secret, key.made_ms]
    for vhost, one in user.permissions.items():
        yield ["permission", vhost, user.name, one.configure, one.write, one.read]
    for (vhost, exchange), each in user.topic_permissions().items():
        yield ["topic-permission", vhost, user.name, exchange, each.write, each.read]
    for name, number in user.limits.items():
        yield ["user-limit", user.name, name, number]


def _check_name(kind: str, name: str) -> None:
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise precondition_failed(f"the name of a {kind} has 1 to {NAME_BYTES_MAX} bytes")


def _check_limit(name: str, number: int, known: tuple[str, ...]) -> None:
    if name not in known:
        raise precondition_failed(f"there is no limit '{name}' (known: {', '.join(known)})")
    if not -1 <= number <= LIMIT_MAX:
        raise precondition_failed(f"a limit is a number from -1, for none, to {LIMIT_MAX}")
