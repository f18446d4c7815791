"""A dead letter is kept by its source until every queue it goes to has it safely."""

from broker.vhost import VHost
from queues.consumers import Consumer
from queues.ready import FifoReady
from tests.channel.fakes import FakeTimers
from tests.queues.fakes import FakeSink, message


class SlowStore:
    """A store whose messages are safe when the test says so."""

    def __init__(self):
        self.ready = FifoReady()
        self.pending = 0
        self.arrived = []
        self.settled = []

    def enqueue(self, messages, receipt):
        self.arrived.append((messages, receipt))

    def settle(self, messages):
        self.settled += messages

    def give_back(self, messages):
        pass

    def close(self):
        return []


def durable_vhost(**queues):
    """A vhost with durable queues of these names and arguments, and their stores."""
    vhost = VHost("/", FakeTimers())
    stores = {}

    def make_durable(queue):
        stores[queue.name] = SlowStore()
        queue.keep_in(lambda hot, store=stores[queue.name]: store)

    vhost.make_durable = make_durable
    for name, arguments in queues.items():
        vhost.declare_queue(
            name,
            durable=True,
            auto_delete=False,
            owner=None,
            arguments=arguments,
            user_of=None,
        )
    return vhost, stores


def reject_one(vhost, store):
    """Have a message in `source` delivered and rejected."""
    source = vhost.queues["source"]
    letter = message(1)
    letter.address = b"\x00\x06source"
    source.publish([letter], None)
    source.enqueued(store.arrived.pop()[0])
    holder = Consumer("", source, FakeSink(), fetching=True)
    held = source.get(holder)
    assert held is not None
    source.discard(holder, [held])
    return held


def test_the_source_settles_a_dead_letter_when_the_target_has_it_safely():
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"}
    vhost, stores = durable_vhost(source=dead, target={})
    held = reject_one(vhost, stores["source"])
    [(letters, receipt)] = stores["target"].arrived
    assert len(letters) == 1
    assert stores["source"].settled == []
    receipt.stored([])
    assert stores["source"].settled == [held]


def test_a_fan_out_of_dead_letters_waits_for_the_last_target():
    vhost, stores = durable_vhost(
        source={"x-dead-letter-exchange": "amq.fanout"}, first={}, second={}
    )
    for name in ("first", "second"):
        vhost.bind("amq.fanout", vhost.queues[name], "", {})
    held = reject_one(vhost, stores["source"])
    receipts = [stores[name].arrived[0][1] for name in ("first", "second")]
    receipts[1].stored([])
    assert stores["source"].settled == []
    receipts[0].stored([])
    assert stores["source"].settled == [held]


def test_a_dead_letter_that_goes_nowhere_is_settled_at_once():
    vhost, stores = durable_vhost(source={"x-dead-letter-exchange": "amq.fanout"})
    assert stores["source"].settled == [reject_one(vhost, stores["source"])]


def test_a_source_deleted_meanwhile_has_nothing_to_settle():
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"}
    vhost, stores = durable_vhost(source=dead, target={})
    reject_one(vhost, stores["source"])
    vhost.delete_queue("source", if_unused=False, if_empty=False, user_of=None)
    stores["target"].arrived[0][1].stored([])
    assert stores["source"].settled == []
