"""Users, vhosts, permissions and limits against a model, and the ways back that recovery takes."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import Config
from broker.protocol.errors import ChannelError
from broker.security.passwords import SHA256, rabbitmq_hash
from broker.security.registry import TAGS_MAX, Registry
from broker.security.seeding import seeds
from broker.user_settings import PermissionConfig, UserConfig

HASH = rabbitmq_hash(b"pw", b"salt").text
OTHER_HASH = rabbitmq_hash(b"other", b"salt").text
USERS, VHOSTS, EXCHANGES = ("ada", "bob"), ("/", "shop"), ("x", "amq.topic")


class Hosts:
    """Virtual hosts that have nothing in them."""

    def __init__(self) -> None:
        self.vhosts: dict[str, Any] = {}
        self.gone: list[Any] = []
        self.registry = Registry(self.vhosts, self)

    def open_vhost(self, name: str, uid: bytes, members: tuple[int, ...]) -> Any:
        vhost = SimpleNamespace(name=name, uid=uid, members=members, details={}, limits={})
        self.vhosts[name] = vhost
        return vhost

    def drop_vhost(self, name: str) -> None:
        del self.vhosts[name]

    def user_gone(self, user: Any) -> None:
        self.gone.append(user)


class Model:
    """The same in dictionaries. Every change works on them, or raises LookupError."""

    def __init__(self) -> None:
        self.users: dict[str, tuple[str, list[str]]] = {}
        self.vhosts: dict[str, dict[str, Any]] = {}
        self.permissions: dict[tuple[str, str], tuple[str, ...]] = {}
        self.topics: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self.user_limits: dict[tuple[str, str], int] = {}
        self.vhost_limits: dict[tuple[str, str], int] = {}

    def apply(self, kind: str, *details: Any) -> None:
        if kind == "user":
            name, text, _, tags = details
            self.users[name] = (text, sorted(set(tags)))
        elif kind == "-user":
            self.users.pop(details[0], None)
            self._forget(1, details[0])
            self.user_limits = {k: v for k, v in self.user_limits.items() if k[0] != details[0]}
        elif kind == "vhost":
            self.vhosts[details[0]] = details[3]
        elif kind == "-vhost":
            self.vhosts.pop(details[0], None)
            self._forget(0, details[0])
            self.vhost_limits = {k: v for k, v in self.vhost_limits.items() if k[0] != details[0]}
        elif kind in ("permission", "topic-permission"):
            self._need(details[1], details[0])
            if kind == "permission":
                self.permissions[details[0], details[1]] = details[2:]
            else:
                self.topics[details[:3]] = details[3:]
        elif kind == "-permission":
            self.permissions.pop(details, None)
        elif kind == "-topic-permission":
            *where, exchange = details
            for key in list(self.topics):
                if key[:2] == tuple(where) and exchange in (None, key[2]):
                    del self.topics[key]
        elif kind.endswith("user-limit"):
            self._need(details[0], None)
            self._limit(self.user_limits, kind, details)
        else:
            self._need(None, details[0])
            self._limit(self.vhost_limits, kind, details)

    def _need(self, user: str | None, vhost: str | None) -> None:
        if user is not None and user not in self.users:
            raise LookupError
        if vhost is not None and vhost not in self.vhosts:
            raise LookupError

    def _limit(self, limits: dict[tuple[str, str], int], kind: str, details: Any) -> None:
        if kind.startswith("-"):
            limits.pop(details, None)
        else:
            limits[details[:2]] = details[2]

    def _forget(self, place: int, name: str) -> None:
        self.permissions = {k: v for k, v in self.permissions.items() if k[place] != name}
        self.topics = {k: v for k, v in self.topics.items() if k[place] != name}


def model_of(hosts: Hosts) -> dict[str, Any]:
    users = hosts.registry.users.values()
    model = Model()
    model.users = {u.name: (u.password.text, sorted(u.tags)) for u in users}
    model.vhosts = {v.name: v.details for v in hosts.vhosts.values()}
    model.permissions = {
        (v, u.name): (p.configure, p.write, p.read) for u in users for v, p in u.permissions.items()
    }
    model.topics = {
        (v, u.name, x): (t.write, t.read)
        for u in users
        for (v, x), t in u.topic_permissions().items()
    }
    model.user_limits = {(u.name, k): n for u in users for k, n in u.limits.items()}
    model.vhost_limits = {
        (v.name, k): n for v in hosts.vhosts.values() for k, n in v.limits.items()
    }
    return vars(model)


user, vhost, exchange = map(st.sampled_from, (USERS, VHOSTS, EXCHANGES))
pattern = st.sampled_from(["", ".*", "^a", "b$"])
number = st.integers(-1, 9)
tags = st.lists(st.sampled_from(["administrator", "management"]), max_size=2)
user_limit = st.sampled_from(["max-connections", "max-channels"])
vhost_limit = st.sampled_from(["max-connections", "max-queues"])
uid = st.binary(min_size=16, max_size=16)
details = st.fixed_dictionaries({}, optional={"description": st.text(max_size=3)})
changes = st.one_of(
    st.tuples(st.just("user"), user, st.sampled_from([HASH, ""]), st.just(SHA256), tags),
    st.tuples(st.just("-user"), user),
    st.tuples(st.just("vhost"), vhost, uid, st.just([1, 2, 3]), details),
    st.tuples(st.just("-vhost"), vhost),
    st.tuples(st.just("permission"), vhost, user, pattern, pattern, pattern),
    st.tuples(st.just("-permission"), vhost, user),
    st.tuples(st.just("topic-permission"), vhost, user, exchange, pattern, pattern),
    st.tuples(st.just("-topic-permission"), vhost, user, st.one_of(st.none(), exchange)),
    st.tuples(st.just("user-limit"), user, user_limit, number),
    st.tuples(st.just("-user-limit"), user, user_limit),
    st.tuples(st.just("vhost-limit"), vhost, vhost_limit, number),
    st.tuples(st.just("-vhost-limit"), vhost, vhost_limit),
)


@given(st.lists(changes, max_size=30))
def test_changes_come_to_what_they_say_and_are_refused_where_something_is_missing(
    made: list[tuple[Any, ...]],
) -> None:
    hosts, model, recorded = Hosts(), Model(), []
    hosts.registry.record = lambda *change: recorded.append(cbor2.dumps(change))
    for change in made:
        before = copy.deepcopy(vars(model))
        try:
            model.apply(*change)
        except LookupError:
            with pytest.raises(ChannelError) as refusal:
                hosts.registry.apply(change)
            assert refusal.value.code == 404
            assert vars(model) == before
        else:
            hosts.registry.apply(change)
        assert model_of(hosts) == vars(model)
    # The ways back: what was recorded, a checkpoint, and one in place of another state.
    replayed, restored, replaced = Hosts(), Hosts(), Hosts()
    for raw in recorded:
        replayed.registry.apply(cbor2.loads(raw))
    checkpoint = [cbor2.loads(cbor2.dumps(change)) for change in hosts.registry.changes()]
    for change in checkpoint:
        restored.registry.apply(change)
    for change in made[len(made) // 2 :]:
        with pytest.raises(ChannelError) if not _fits(replaced, change) else _nothing():
            replaced.registry.apply(change)
    replaced.registry.replace(checkpoint)
    for other in (replayed, restored, replaced):
        assert model_of(other) == vars(model)
        assert {v.name: v.uid for v in other.vhosts.values()} == {
            v.name: v.uid for v in hosts.vhosts.values()
        }


def _fits(hosts: Hosts, change: tuple[Any, ...]) -> bool:
    model = Model()
    for name, found in model_of(hosts).items():
        setattr(model, name, found)
    try:
        model.apply(*change)
    except LookupError:
        return False
    return True


class _nothing:  # noqa: N801 - as contextlib.nullcontext, which pytest.raises is not
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    "change",
    [
        ["user", "", HASH, SHA256, []],
        ["user", "x" * 256, HASH, SHA256, []],
        ["user", "ada", "!", SHA256, []],
        ["user", "ada", HASH, "md5", []],
        ["user", "ada", HASH, SHA256, ["t"] * (TAGS_MAX + 1)],
        ["user", "ada", HASH, SHA256, ["t" * 256]],
        ["user", "\udcff", HASH, SHA256, []],
        ["vhost", "", b"", [], {}],
        ["vhost", "x" * 256, b"", [], {}],
        ["topic-permission", "/", "ada", "x" * 256, "", ""],
        ["user-limit", "ada", "max-queues", 1],
        ["user-limit", "ada", "max-channels", 2**31],
        ["vhost-limit", "/", "max-channels", 1],
        ["vhost-limit", "/", "max-queues", -2],
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(change: list[Any]) -> None:
    hosts, recorded = Hosts(), []
    hosts.registry.apply(["vhost", "/", b"", [], {}])
    hosts.registry.apply(["user", "ada", OTHER_HASH, SHA256, ["management"]])
    hosts.registry.record = lambda *change: recorded.append(change)
    before = model_of(hosts)
    with pytest.raises(ChannelError) as refusal:
        hosts.registry.apply(change)
    assert refusal.value.code == 406
    assert model_of(hosts) == before
    assert not recorded


def test_a_user_who_is_deleted_is_told_of_and_one_who_is_changed_stays_who_they_are() -> None:
    hosts = Hosts()
    hosts.registry.apply(["user", "ada", HASH, SHA256, []])
    ada = hosts.registry.users["ada"]
    hosts.registry.apply(["user", "ada", OTHER_HASH, SHA256, ["x"]])
    assert hosts.registry.users["ada"] is ada
    assert ada.tags == {"x"}
    hosts.registry.replace(list(hosts.registry.changes()))
    assert hosts.registry.users["ada"] is ada
    hosts.registry.apply(["-user", "ada"])
    assert hosts.gone == [ada]


# Seeds


def seed(hosts: Hosts, config: Config) -> None:
    for change in seeds(config, hosts.registry):
        hosts.registry.apply(cbor2.loads(cbor2.dumps(change)))


def configured(*names: str, vhosts: tuple[str, ...] = ("/",)) -> Config:
    permissions = tuple(PermissionConfig(vhost=v, read=".*") for v in vhosts)
    stored = rabbitmq_hash(b"pw", b"salt")
    users = [UserConfig(name=n, password_hash=stored, permissions=permissions) for n in names]
    return Config(users=tuple(users), vhosts=vhosts)


def test_a_configured_name_is_made_once_and_not_brought_back() -> None:
    hosts = Hosts()
    seed(hosts, configured("ada", vhosts=("/", "shop")))
    assert hosts.registry.users["ada"].permissions.keys() == {"/", "shop"}
    hosts.registry.apply(["-user", "ada"])
    hosts.registry.apply(["-vhost", "shop"])
    seed(hosts, configured("ada", "bob", vhosts=("/", "shop")))
    assert hosts.registry.users.keys() == {"bob"}, "a new name is made, an old one is not"
    assert hosts.vhosts.keys() == {"/"}
    assert hosts.registry.users["bob"].permissions.keys() == {"/"}


def test_a_seed_does_not_change_what_is_there() -> None:
    hosts = Hosts()
    hosts.registry.apply(["user", "ada", OTHER_HASH, SHA256, ["mine"]])
    seed(hosts, configured("ada"))
    assert hosts.registry.users["ada"].password.text == OTHER_HASH
    assert hosts.registry.users["ada"].tags == {"mine"}


def test_what_was_seeded_is_remembered_by_checkpoints() -> None:
    hosts, again = Hosts(), Hosts()
    seed(hosts, configured("ada"))
    hosts.registry.apply(["-user", "ada"])
    again.registry.replace(list(hosts.registry.changes()))
    seed(again, configured("ada"))
    assert not again.registry.users


def test_a_password_of_the_configuration_is_kept_as_a_costly_hash() -> None:
    hosts = Hosts()
    seed(hosts, Config(users=(UserConfig(name="ada", password="s3cret"),)))
    stored = hosts.registry.users["ada"].password
    assert stored.is_costly
    assert stored.matches(b"s3cret")


def test_a_pattern_of_an_older_version_is_brought_back_and_grants_nothing() -> None:
    """A start must not fail on it; the doors refuse such patterns."""
    hosts = Hosts()
    hosts.registry.apply(["vhost", "/", b"", [], {}])
    hosts.registry.apply(["user", "ada", HASH, SHA256, []])
    change = ["permission", "/", "ada", "a(?=b)", ".*", "(a)\\1"]
    hosts.registry.apply(change)
    ada = hosts.registry.users["ada"]
    assert ada.may_enter("/")
    assert not ada.may("/", "configure", "ab")
    assert ada.may("/", "write", "ab")
    assert change in list(hosts.registry.changes())
