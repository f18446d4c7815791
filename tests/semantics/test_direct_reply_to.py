"""amq.rabbitmq.reply-to: answers to requesters without a reply queue."""

import pytest

from tests.support.frames import Basic, Confirm
from tests.support.scene import Scene
from tests.support.wire import ChannelClosedError, WireChannel

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def requester(channel: WireChannel) -> WireChannel:
    channel.consume(REPLY_TO, "answers", no_ack=True)
    return channel


def request(scene: Scene, requester: WireChannel, server: WireChannel) -> str:
    """Send a request, and return the reply-to its server sees."""
    queue = scene.queue(server)
    requester.publish("", queue, b"question", reply_to=REPLY_TO, correlation_id="c1")
    server.settle(queue)
    got = server.get(queue, no_ack=True)
    assert (got.body, got.properties.correlation_id) == (b"question", "c1")
    return got.properties.reply_to


def test_the_answer_reaches_the_requesters_channel(scene: Scene, requester: WireChannel) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    assert address.startswith(f"{REPLY_TO}.")
    server.publish("", address, b"answer", correlation_id="c1")
    got = requester.delivery()
    assert (got.body, got.consumer_tag) == (b"answer", "answers")
    assert (got.exchange, got.routing_key) == ("", address)
    assert got.properties.correlation_id == "c1"
    assert not got.redelivered


def test_many_answers_may_come_and_keep_their_order(scene: Scene, requester: WireChannel) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    for number in range(50):
        server.publish("", address, b"%d" % number)
    assert [d.body for d in requester.deliveries(50)] == [b"%d" % n for n in range(50)]


def test_the_server_can_see_whether_the_requester_still_waits(
    scene: Scene, requester: WireChannel
) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    assert server.declare_queue(address, passive=True).queue == address
    requester.conn.close()
    with pytest.raises(ChannelClosedError, match="no queue"):
        server.declare_queue(address, passive=True)


def test_an_answer_is_confirmed(scene: Scene, requester: WireChannel) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    server.rpc(Confirm.Select())
    server.publish("", address, b"answer")
    assert server.expect(Basic.Ack).delivery_tag == 1
    assert requester.delivery().body == b"answer"


def test_a_mandatory_answer_is_delivered_though_it_counts_as_not_routed(
    scene: Scene, requester: WireChannel
) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    server.publish("", address, b"answer", mandatory=True)
    assert server.expect(Basic.Return).reply_code == 312
    assert requester.delivery().body == b"answer"


@pytest.mark.parametrize("how", ["cancel", "close channel", "close connection"])
def test_an_answer_to_a_requester_that_left_is_returned(
    scene: Scene, requester: WireChannel, how: str
) -> None:
    server = scene.channel()
    address = request(scene, requester, server)
    match how:
        case "cancel":
            requester.cancel("answers")
        case "close channel":
            requester.close()
        case "close connection":
            requester.conn.close()
    server.rpc(Confirm.Select())
    server.publish("", address, b"answer", mandatory=True)
    assert server.expect(Basic.Return).reply_code == 312
    server.expect(Basic.Ack)


def test_an_invented_address_routes_nowhere(channel: WireChannel) -> None:
    channel.publish("", f"{REPLY_TO}.invented", b"?", mandatory=True)
    assert channel.expect(Basic.Return).reply_code == 312


def test_the_requester_may_consume_again_after_cancel(requester: WireChannel) -> None:
    requester.cancel("answers")
    requester.consume(REPLY_TO, "again", no_ack=True)


def test_declaring_the_pseudo_queue_is_fine(channel: WireChannel) -> None:
    answer = channel.declare_queue(REPLY_TO, passive=True)
    assert (answer.queue, answer.message_count, answer.consumer_count) == (REPLY_TO, 0, 1)


def test_a_named_exchange_keeps_the_rewritten_address_too(
    scene: Scene, requester: WireChannel
) -> None:
    server = scene.channel()
    queue = scene.queue(server)
    server.bind(queue, "amq.direct", queue)
    requester.publish("amq.direct", queue, b"q", reply_to=REPLY_TO)
    server.settle(queue)
    address = server.get(queue, no_ack=True).properties.reply_to
    assert address.startswith(f"{REPLY_TO}.")


def test_other_reply_to_values_pass_untouched(scene: Scene, requester: WireChannel) -> None:
    queue = scene.queue(requester, exclusive=True)
    requester.publish("", queue, reply_to="my-own-queue")
    assert requester.get(queue).properties.reply_to == "my-own-queue"


def test_a_requester_may_answer_itself_on_the_same_channel(
    scene: Scene, requester: WireChannel
) -> None:
    queue = scene.queue(requester, exclusive=True)
    requester.publish("", queue, b"q", reply_to=REPLY_TO)
    address = requester.get(queue, no_ack=True).properties.reply_to
    requester.publish("", address, b"self")
    assert requester.delivery().body == b"self"


def test_publishing_to_the_bare_name_goes_nowhere(requester: WireChannel) -> None:
    requester.publish("", REPLY_TO, b"?", mandatory=True)
    assert requester.expect(Basic.Return).reply_code == 312
