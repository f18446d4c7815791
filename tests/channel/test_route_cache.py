"""Remembered routes: forgotten whenever they might be wrong, and never too many."""

import pytest
from pamqp import commands

from broker.protocol.errors import ChannelError, ConnectionFailure
from broker.routes import CACHED_ROUTES_MAX
from tests.channel.fakes import FakeLink, declare, declare_exchange, user_who_may_write


@pytest.fixture
def link():
    return FakeLink()


def publish_args(exchange="", key="q", **flags):
    return commands.Basic.Publish(exchange=exchange, routing_key=key, **flags).marshal()


def resolve(link, *args, **kwargs):
    return link.vhost.routes_for(link.user).resolve(publish_args(*args, **kwargs))


def test_a_route_is_remembered_by_the_bytes_of_its_publish(link):
    queue = declare(link, "q")
    route = resolve(link, key="q")
    assert route.targets == (queue,)
    assert (route.exchange.name, route.key, route.address) == ("", "q", b"\x00\x01q")
    assert link.vhost.routes_for(link.user).routes == {publish_args(key="q"): route}
    assert resolve(link, key="q", mandatory=True).mandatory
    assert len(link.vhost.routes_for(link.user).routes) == 2


def test_each_user_has_routes_of_their_own(link):
    declare_exchange(link, "x")
    other = user_who_may_write("^nothing$", "other")
    assert resolve(link, "x").targets == ()
    with pytest.raises(ChannelError, match="refused") as error:
        link.vhost.routes_for(other).resolve(publish_args("x"))
    assert error.value.code == 403
    assert link.vhost.routes_for(link.user) is link.vhost.routes_for(link.user)


def _declare_queue(link):
    declare(link, "new")


def _delete_queue(link):
    link.vhost.delete_queue("q", if_unused=False, if_empty=False, user_of=link)


def _bind(link):
    link.vhost.bind("x", link.vhost.queues["q"], "another", {})


def _unbind(link):
    link.vhost.unbind("x", link.vhost.queues["q"], "k", {})


def _declare_exchange(link):
    declare_exchange(link, "new")


def _delete_exchange(link):
    link.vhost.delete_exchange("y", if_unused=False)


@pytest.mark.parametrize(
    "change",
    [_declare_queue, _delete_queue, _bind, _unbind, _declare_exchange, _delete_exchange],
    ids=lambda change: change.__name__.strip("_").replace("_", " "),
)
def test_whatever_may_change_a_route_forgets_all(link, change):
    queue = declare(link, "q")
    declare_exchange(link, "x")
    declare_exchange(link, "y", "fanout")
    link.vhost.bind("x", queue, "k", {})
    link.vhost.bind("y", queue, "", {})
    routes = link.vhost.routes_for(link.user).routes
    resolve(link, "x", "k")
    resolve(link, key="q")
    assert len(routes) == 2
    change(link)
    assert routes == {}, "emptied in place: publishers hold on to it"


@pytest.mark.parametrize(
    ("exchange", "flags", "kind", "code"),
    [
        ("missing", {}, ChannelError, 404),
        ("inner", {}, ChannelError, 403),
        ("", {"immediate": True}, ConnectionFailure, 540),
    ],
)
def test_what_is_refused_is_not_remembered(link, exchange, flags, kind, code):
    declare_exchange(link, "inner", internal=True)
    with pytest.raises(kind) as error:
        resolve(link, exchange, **flags)
    assert error.value.code == code
    assert link.vhost.routes_for(link.user).routes == {}


def test_where_headers_decide_the_targets_are_left_open(link):
    declare_exchange(link, "h", "headers")
    declare_exchange(link, "front", "fanout")
    link.vhost.bind("front", link.vhost.exchange("h"), "", {})
    assert resolve(link, "h").targets is None
    assert resolve(link, "front").targets is None
    assert resolve(link, "amq.topic").targets == ()


def test_addresses_for_replies_are_not_remembered(link):
    address = "amq.rabbitmq.reply-to.abc"
    assert resolve(link, key=address).reply is None
    link.vhost.reply_targets[address] = target = object()
    assert resolve(link, key=address).reply is target
    assert link.vhost.routes_for(link.user).routes == {}
    declare_exchange(link, "x")
    assert resolve(link, "x", address).reply is None


def test_ever_new_keys_do_not_fill_the_memory(link):
    routes = link.vhost.routes_for(link.user).routes
    for n in range(CACHED_ROUTES_MAX + 10):
        resolve(link, key=str(n))
        assert len(routes) <= CACHED_ROUTES_MAX
    assert 0 < len(routes) <= 10
