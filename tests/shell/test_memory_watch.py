"""What is done as memory gets short: page out, then hold publishers up; and back again."""

import errno

from broker.config import Config
from broker.memory_watch import GIVE_BACK_LOOKS, MemoryWatch
from broker.node import LOOK_BYTES, Node
from flow_control.memory import STILL_LOOKS, STILL_LOOKS_MAX

LIMIT = 1_000_000_000


class FakeMeter:
    def __init__(self):
        self.used = 0

    def used_bytes(self):
        return self.used

    def give_back(self):
        pass


def watched():
    node = Node(Config(memory_limit=LIMIT))
    meter, calls = FakeMeter(), []
    watch = MemoryWatch(node, meter, calls.append)

    def read(share):
        meter.used = int(share * LIMIT)
        give_back = watch.look()
        assert node.memory_used_bytes == meter.used
        taken = calls[:]
        calls.clear()
        return taken, node.paging, node.blocked, give_back

    return read


def test_messages_are_paged_out_from_half_of_the_limit_on_and_publishers_wait_at_all_of_it():
    read = watched()
    assert read(0.4)[:3] == ([], False, None)
    assert read(0.6)[:3] == ([True], True, None)
    assert read(0.6)[:3] == ([True], True, None)
    assert read(1.1)[:3] == ([True], True, "low on memory")
    assert read(0.95)[:3] == ([True], True, "low on memory")
    assert read(0.85)[:3] == ([True], True, None)
    assert read(0.46)[:3] == ([True], True, None)
    assert read(0.44)[:3] == ([False], False, None)
    assert read(0.44)[:3] == ([], False, None)


def test_when_much_has_come_only_changes_are_acted_on():
    node = Node(Config(memory_limit=LIMIT))
    meter, calls = FakeMeter(), []
    MemoryWatch(node, meter, calls.append)
    for share in (0.4, 0.6, 0.6, 1.1, 1.1, 0.4):
        meter.used = int(share * LIMIT)
        node.received(LOOK_BYTES - 1)
        node.received(1)
    assert calls == [True, False]
    assert node.blocked is None
    meter.used = 2 * LIMIT
    node.received(LOOK_BYTES - 1)
    assert node.blocked is None
    node.received(1)
    assert node.blocked == "low on memory"


def test_memory_is_given_back_now_and_then_while_paging_and_always_in_an_alarm():
    read = watched()
    assert [read(0.4)[3] for _ in range(8)] == [False] * 8
    assert sum(read(0.6)[3] for _ in range(8)) == 8 // GIVE_BACK_LOOKS
    assert [read(1.1)[3] for _ in range(8)] == [True] * 8


def test_a_reading_that_cannot_be_taken_leaves_the_last_one_in_force(caplog):
    """There may be no descriptor left for the file that says how much is in use."""
    node = Node(Config(memory_limit=LIMIT))
    meter, calls = FakeMeter(), []
    watch = MemoryWatch(node, meter, calls.append)
    meter.used = 2 * LIMIT
    watch.look()
    assert node.blocked == "low on memory"

    def no_descriptor():
        raise OSError(errno.EMFILE, "Too many open files")

    meter.used_bytes = no_descriptor
    for _ in range(3):
        watch.look()
    assert (node.blocked, node.memory_used_bytes) == ("low on memory", 2 * LIMIT)
    assert [each.msg for each in caplog.records].count("not_read") == 1
    meter.used_bytes = lambda: 0
    watch.look()
    assert node.blocked is None


def looks_until_given_back(read, share, most=10_000):
    return next(look for look in range(most) if read(share)[3])


def test_freed_memory_is_given_back_once_the_node_is_at_rest():
    read = watched()
    assert not any(read(0.3 + 0.02 * (look % 10))[3] for look in range(500)), "it is in use"
    assert looks_until_given_back(read, 0.4) <= STILL_LOOKS
    assert looks_until_given_back(read, 0.2) <= STILL_LOOKS, "it helped, and may help again"
    waits = [looks_until_given_back(read, 0.2) for _ in range(10)]
    assert waits == sorted(waits), "in vain, it is tried less and less"
    assert waits[-1] < STILL_LOOKS_MAX
    assert not any(read(0.1)[3] for _ in range(500)), "little is kept"
