"""A dead letter is kept by its source until every queue it goes to has it safely."""

from dataclasses import replace

import pytest

from broker.vhost import VHost
from queues.consumers import Consumer
from queues.ready import FifoReady
from tests.channel.fakes import FakeTimer, FakeTimers
from tests.queues.fakes import FakeSink, message


class SlowStore:
    """A store whose messages are safe when the test says so."""

    def __init__(self):
        self.ready = FifoReady()
        self.pending = 0
        self.arrived = []
        self.ids = []
        self.settled = []

    def enqueue(self, messages, receipt, delayed=(), ids=(), note=None):
        self.arrived.append((messages, receipt))
        self.ids += [digest for digest, _ in ids]

    def delivered(self, step):
        pass

    def seen(self, digest, now_ms):
        return False

    def settle(self, messages):
        self.settled += messages

    def give_back(self, messages):
        pass

    def close(self):
        return []


def durable_vhost(timers=None, **queues):
    """A vhost with durable queues of these names and arguments, and their stores."""
    vhost = VHost("/", timers or FakeTimers())
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


def reject_one(vhost, store, sequence=0):
    """Have a message in `source` delivered and rejected."""
    source = vhost.queues["source"]
    letter = message(1)
    letter.address = b"\x00\x06source"
    letter.sequence = sequence
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


# What targets refuse


TO_TARGET = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"}


class Timers(FakeTimers):
    """Rings when it is told to."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def call_at(self, when_ms, callback):
        self.waiting.append(callback)
        return FakeTimer()

    def ring(self):
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


@pytest.fixture
def timers():
    return Timers()


def test_a_letter_for_a_damaged_queue_waits_until_it_is_sound_again(timers):
    vhost, stores = durable_vhost(timers, source=TO_TARGET, target={})
    target = vhost.queues["target"]
    target.damaged = "a bit fell over"
    held = reject_one(vhost, stores["source"])
    assert (stores["source"].settled, vhost.queues["source"].dying) == ([], 1)
    timers.ring()
    target.damaged = None
    assert stores["target"].arrived == []
    timers.ring()
    [(letters, receipt)] = stores["target"].arrived
    receipt.stored([])
    assert len(letters) == 1
    assert stores["source"].settled == [held]


def test_a_letter_goes_again_only_to_those_who_refused_it(timers):
    vhost, stores = durable_vhost(
        timers, source={"x-dead-letter-exchange": "amq.fanout"}, first={}, second={}
    )
    for name in ("first", "second"):
        vhost.bind("amq.fanout", vhost.queues[name], "", {})
    vhost.queues["second"].damaged = "a bit fell over"
    held = reject_one(vhost, stores["source"])
    stores["first"].arrived.pop()[1].stored([])
    vhost.queues["second"].damaged = None
    timers.ring()
    assert stores["first"].arrived == []
    stores["second"].arrived.pop()[1].stored([])
    assert stores["source"].settled == [held]


def test_a_target_that_is_full_by_its_own_limit_drops_what_it_refuses(timers):
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    vhost, stores = durable_vhost(timers, source=TO_TARGET, target=full)
    held = reject_one(vhost, stores["source"])
    assert stores["source"].settled == [held]


def test_a_letter_that_waits_goes_where_the_queue_says_then(timers):
    vhost, stores = durable_vhost(timers, source=TO_TARGET, target={}, other={})
    vhost.queues["target"].damaged = "a bit fell over"
    held = reject_one(vhost, stores["source"])
    source = vhost.queues["source"]
    source.configure(replace(source.options, dead_letter_routing_key="other"))
    stores["other"].arrived.pop()[1].stored([])
    assert stores["source"].settled == [held]


def test_a_letter_that_waits_is_dropped_when_its_queue_has_no_dead_letters_any_more(timers):
    vhost, stores = durable_vhost(timers, source=TO_TARGET, target={})
    vhost.queues["target"].damaged = "a bit fell over"
    held = reject_one(vhost, stores["source"])
    source = vhost.queues["source"]
    source.configure(
        replace(source.options, dead_letter_exchange=None, dead_letter_routing_key=None)
    )
    assert stores["source"].settled == [held]


def test_one_message_makes_one_letter_however_often_it_dies(timers):
    vhost, stores = durable_vhost(timers, source=TO_TARGET, target={})
    ids = stores["target"].ids
    held = reject_one(vhost, stores["source"])
    source = vhost.queues["source"]
    holder = Consumer("", source, FakeSink(), fetching=True)
    source.discard(holder, [held])  # as the next leader does, that found it alive
    assert len(ids) == 2
    assert ids[0] == ids[1]
    reject_one(vhost, stores["source"], sequence=held.sequence + 1)  # sent back, it is new
    assert ids[2] != ids[0]
