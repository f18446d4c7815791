"""Messages that an operator takes out of the cold ones by themselves."""

from queues.paged import HotBudget
from tests.durability.fake_log import FakeDisk
from tests.durability.store_on_log import ANY_SIZE, make_message, name_of, open_store


def cold_store(count):
    """So many messages, none of which is in memory, and a read of the first under way."""
    disk = FakeDisk()
    log, store, _ = open_store(disk, HotBudget(0), lambda: 0)
    store.enqueue([make_message(name) for name in range(count)], None)
    log.settle_down()
    return open_store(disk, HotBudget(0), lambda: 0)


def take_apart(log, store, sequence):
    taken = []
    store.read([sequence], taken.extend)
    log.reads.rotate(1)  # before the read that is under way
    log.finish_read()
    assert store.take_apart(taken[0])
    return taken[0]


def names_of_the_rest(log, store):
    while log.reads:
        log.finish_read()
    return [name_of(message) for message in store.ready.take(100, ANY_SIZE)]


def test_a_settled_one_is_not_read_back_while_its_settle_is_on_its_way():
    log, store, _ = cold_store(4)
    store.settle([take_apart(log, store, 2)])
    assert store.cold_after(-1, 10) == [0, 1, 3]
    assert (names_of_the_rest(log, store), len(store.ready)) == ([0, 1, 3], 0)


def test_a_delayed_one_is_not_read_back_while_its_delay_is_on_its_way():
    log, store, _ = cold_store(4)
    message = take_apart(log, store, 2)
    store.give_back([message])
    store.delay([(2, 1000)])
    assert store.cold_after(-1, 10) == [0, 1, 3]
    assert (names_of_the_rest(log, store), len(store.ready)) == ([0, 1, 3], 0)


def test_a_purge_leaves_what_an_operator_holds():
    log, store, _ = cold_store(4)
    message = take_apart(log, store, 2)
    assert store.purge() == 3
    log.settle_down()
    while log.reads:
        log.finish_read()
    store.ready.put_back([message])
    assert [name_of(each) for each in store.ready.take(10, ANY_SIZE)] == [2]
    store.settle([message])
    log.settle_down()
    assert store.cold_after(-1, 10) == []


def test_all_of_an_entry_may_be_settled_while_it_is_read():
    log, store, _ = cold_store(2)
    store.settle([take_apart(log, store, 0), take_apart(log, store, 1)])
    log.settle_down()
    assert (names_of_the_rest(log, store), len(store.ready)) == ([], 0)
