"""From exchange and key to queues, through a real broker: all types, CC, chains, alternates."""

from typing import Any

import pytest

from tests.support.frames import Basic, Exchange, Queue
from tests.support.scene import Scene
from tests.support.wire import WireChannel


def arrives(channel: WireChannel, queue: str) -> list[bytes]:
    channel.settle(queue)
    return channel.get_all(queue)


TOPIC_CASES = [
    # pattern, keys it matches, keys it does not
    ("a.b", ["a.b"], ["a", "a.b.c", "A.B", "a.*"]),
    ("*", ["a", "longer"], ["", "a.b"]),
    ("#", ["", "a", "a.b.c", "."], []),
    ("#.#", ["", "a", "a.b"], []),
    ("*.*", [".", "a.b"], ["", "a", "a.b.c"]),
    ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", "b.a"]),
    ("#.a", ["a", "b.a", "c.b.a"], ["a.b"]),
    ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
    ("a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c", "a.c.d"]),
    ("a.#.#.c", ["a.c", "a.b.c"], ["a.b"]),
    ("*.#", ["a", "a.b"], [""]),
    ("#.*", ["a", "a.b"], [""]),
    ("a*", ["a*"], ["ab", "a"]),
    ("a.b#", ["a.b#"], ["a.b", "a.bc"]),
    ("", [""], ["a", "."]),
    ("a..b", ["a..b"], ["a.b", "a.x.b"]),
    ("grüße.*", ["grüße.🐇"], ["gruesse.x"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), TOPIC_CASES)
def test_topic_pattern(
    scene: Scene, channel: WireChannel, pattern: str, matching: list[str], others: list[str]
) -> None:
    exchange = scene.exchange(channel, "topic")
    queue = scene.bound_queue(channel, exchange, pattern)
    for key in matching + others:
        channel.publish(exchange, key, key.encode())
    assert arrives(channel, queue) == [key.encode() for key in matching]


HEADERS_CASES: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    # words, binding, headers it matches, headers it does not
    ("all is the default", {"a": 1, "b": 2}, [{"a": 1, "b": 2}], [{"a": 1}, {}]),
    ("all", {"x-match": "all", "a": "x"}, [{"a": "x"}, {"a": "x", "b": 1}], [{"a": "y"}]),
    ("any", {"x-match": "any", "a": 1, "b": 2}, [{"a": 1}, {"b": 2}], [{"a": 2}, {"c": 1}]),
    ("empty all matches everything", {"x-match": "all"}, [{}, {"a": 1}], []),
    ("empty any matches nothing", {"x-match": "any"}, [], [{}, {"a": 1}]),
    ("void asks for presence", {"a": None}, [{"a": 1}, {"a": "x"}], [{}, {"b": 1}]),
    ("all ignores x-keys", {"x-match": "all", "x-a": 1, "b": 2}, [{"b": 2}], [{"x-a": 1}]),
    ("any ignores x-keys", {"x-match": "any", "x-a": 1, "b": 2}, [{"b": 2}], [{"x-a": 1}]),
    ("all-with-x", {"x-match": "all-with-x", "x-a": 1, "b": 2}, [{"x-a": 1, "b": 2}], [{"b": 2}]),
    ("any-with-x", {"x-match": "any-with-x", "x-a": 1}, [{"x-a": 1}], [{"b": 2}]),
    ("types differ", {"a": "1"}, [{"a": "1"}], [{"a": 1}, {"a": True}]),
]


@pytest.mark.parametrize(
    ("arguments", "matching", "others"),
    [pytest.param(*case[1:], id=case[0]) for case in HEADERS_CASES],
)
def test_headers_binding(
    scene: Scene,
    channel: WireChannel,
    arguments: dict[str, Any],
    matching: list[Any],
    others: list[Any],
) -> None:
    exchange = scene.exchange(channel, "headers")
    queue = scene.bound_queue(channel, exchange, "", arguments)
    for headers in matching + others:
        channel.publish(exchange, "", repr(headers).encode(), headers=headers)
    assert arrives(channel, queue) == [repr(headers).encode() for headers in matching]


def test_direct_needs_the_very_key(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "direct")
    queue = scene.bound_queue(channel, exchange, "key")
    for key in ("key", "Key", "key.", "", "#"):
        channel.publish(exchange, key, key.encode())
    assert arrives(channel, queue) == [b"key"]


def test_fanout_ignores_keys(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "fanout")
    queues = [scene.bound_queue(channel, exchange, key) for key in ("a", "b")]
    channel.publish(exchange, "c", b"all")
    assert [arrives(channel, queue) for queue in queues] == [[b"all"], [b"all"]]


def test_the_default_exchange_routes_by_queue_name(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", queue, b"direct")
    got = channel.get(queue)
    assert (got.exchange, got.routing_key, got.body) == ("", queue, b"direct")


def test_consistent_hash_sends_a_key_always_to_the_same_queue(
    scene: Scene, channel: WireChannel
) -> None:
    exchange = scene.exchange(channel, "x-consistent-hash")
    queues = [scene.bound_queue(channel, exchange, "1") for _ in range(3)]
    for _ in range(3):
        for number in range(40):
            channel.publish(exchange, f"key-{number}", b"%d" % number)
    shares = [arrives(channel, queue) for queue in queues]
    assert sum(map(len, shares)) == 120
    assert all(share for share in shares)
    for share in shares:
        assert all(share.count(body) == 3 for body in share)


def test_a_queue_matched_twice_gets_one_copy(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "topic")
    queue = scene.bound_queue(channel, exchange, "a.#")
    channel.bind(queue, exchange, "#.b")
    channel.publish(exchange, "a.b", b"once")
    assert arrives(channel, queue) == [b"once"]


def test_the_same_binding_twice_is_one_binding(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "direct")
    queue = scene.bound_queue(channel, exchange, "k")
    channel.bind(queue, exchange, "k")
    channel.rpc(Queue.Unbind(queue=queue, exchange=exchange, routing_key="k"))
    channel.publish(exchange, "k", b"", mandatory=True)
    channel.expect(Basic.Return)


def test_bindings_differ_by_their_arguments(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "direct")
    queue = scene.bound_queue(channel, exchange, "k", {"a": 1})
    channel.bind(queue, exchange, "k", {"a": 2})
    channel.rpc(Queue.Unbind(queue=queue, exchange=exchange, routing_key="k", arguments={"a": 1}))
    channel.publish(exchange, "k", b"still bound")
    assert arrives(channel, queue) == [b"still bound"]


def test_exchanges_bound_to_exchanges_pass_messages_on(scene: Scene, channel: WireChannel) -> None:
    source = scene.exchange(channel, "topic")
    target = scene.exchange(channel, "direct")
    queue = scene.bound_queue(channel, target, "a.b")
    channel.rpc(Exchange.Bind(destination=target, source=source, routing_key="a.*"))
    channel.publish(source, "a.b", b"through")
    channel.publish(source, "b.b", b"not")
    got = channel.get(queue) or channel.get(queue)
    assert (got.body, got.exchange, got.routing_key) == (b"through", source, "a.b")
    channel.rpc(Exchange.Unbind(destination=target, source=source, routing_key="a.*"))
    channel.publish(source, "a.b", b"", mandatory=True)
    channel.expect(Basic.Return)


def test_a_cycle_of_exchanges_ends(scene: Scene, channel: WireChannel) -> None:
    ring = [scene.exchange(channel, "fanout") for _ in range(3)]
    for source, target in zip(ring, [*ring[1:], ring[0]], strict=True):
        channel.rpc(Exchange.Bind(destination=target, source=source))
    queues = [scene.bound_queue(channel, exchange) for exchange in ring]
    channel.publish(ring[0], "", b"round")
    assert [arrives(channel, queue) for queue in queues] == [[b"round"]] * 3


def test_two_ways_to_a_queue_give_one_copy(scene: Scene, channel: WireChannel) -> None:
    source = scene.exchange(channel, "fanout")
    middle = scene.exchange(channel, "fanout")
    queue = scene.bound_queue(channel, source)
    channel.bind(queue, middle)
    channel.rpc(Exchange.Bind(destination=middle, source=source))
    channel.publish(source, "", b"once")
    assert arrives(channel, queue) == [b"once"]


def test_what_an_exchange_cannot_route_goes_to_its_alternate(
    scene: Scene, channel: WireChannel
) -> None:
    spare = scene.exchange(channel, "fanout")
    caught = scene.bound_queue(channel, spare)
    main = scene.exchange(channel, "direct", arguments={"alternate-exchange": spare})
    bound = scene.bound_queue(channel, main, "known")
    channel.publish(main, "known", b"1")
    channel.publish(main, "unknown", b"2")
    assert arrives(channel, bound) == [b"1"]
    assert arrives(channel, caught) == [b"2"]


def test_a_missing_alternate_is_as_none(scene: Scene, channel: WireChannel) -> None:
    arguments = {"alternate-exchange": scene.exchange_name()}
    main = scene.exchange(channel, "direct", arguments=arguments)
    channel.publish(main, "unknown", b"2", mandatory=True)
    assert channel.expect(Basic.Return).reply_code == 312


def test_alternates_that_point_at_each_other_end(scene: Scene, channel: WireChannel) -> None:
    one, other = scene.exchange_name(), scene.exchange_name()
    channel.declare_exchange(one, arguments={"alternate-exchange": other})
    channel.declare_exchange(other, arguments={"alternate-exchange": one})
    channel.publish(one, "unknown", b"", mandatory=True)
    assert channel.expect(Basic.Return).reply_code == 312


def test_an_internal_exchange_can_be_reached_by_binding(scene: Scene, channel: WireChannel) -> None:
    inner = scene.exchange(channel, "fanout", internal=True)
    outer = scene.exchange(channel, "fanout")
    queue = scene.bound_queue(channel, inner)
    channel.rpc(Exchange.Bind(destination=inner, source=outer))
    channel.publish(outer, "", b"in")
    assert arrives(channel, queue) == [b"in"]


def test_cc_and_bcc_add_keys_and_only_bcc_is_hidden(scene: Scene, channel: WireChannel) -> None:
    exchange = scene.exchange(channel, "direct")
    queues = [scene.bound_queue(channel, exchange, key) for key in ("main", "copy", "blind")]
    headers = {"CC": ["copy"], "BCC": ["blind"], "other": 1}
    channel.publish(exchange, "main", b"x", headers=headers)
    for queue in queues:
        channel.settle(queue)
        got = channel.get(queue)
        assert got.routing_key == "main"
        assert got.headers == {"CC": ["copy"], "other": 1}


def test_cc_works_on_the_default_exchange(scene: Scene, channel: WireChannel) -> None:
    one, other = scene.queue(channel, exclusive=True), scene.queue(channel, exclusive=True)
    channel.publish("", one, b"both", headers={"CC": [other, one]})
    assert arrives(channel, one) == [b"both"]
    assert arrives(channel, other) == [b"both"]


def test_routed_by_cc_alone_counts_as_routed(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", "nowhere", b"cc", mandatory=True, headers={"CC": [queue]})
    channel.assert_quiet(queue)
    assert arrives(channel, queue) == [b"cc"]
