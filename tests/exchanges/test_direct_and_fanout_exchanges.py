"""The direct and fanout exchanges against a plain list of bindings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges.direct import DirectTable
from exchanges.fanout import FanoutTable
from tests.exchanges.fake_queue import Queue, matched

KEY = st.sampled_from(["", "a", "A", "a.b", "#"])
TOGGLES = st.lists(st.tuples(st.integers(0, 3), KEY, st.integers(0, 1)), max_size=40)


@pytest.mark.parametrize(
    ("make_table", "fits"),
    [(DirectTable, lambda bound, key: bound == key), (FanoutTable, lambda bound, key: True)],
)
def test_bindings_that_come_and_go_leave_exactly_the_rest_matching(make_table, fits):
    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(TOGGLES, KEY)
    def check(toggles, key):
        table = make_table({})
        queues = [Queue(f"q{i}") for i in range(4)]
        bound = []
        for toggle in toggles:
            queue, bound_key, argument = toggle
            if toggle in bound:
                bound.remove(toggle)
                table.unbind(queues[queue], bound_key, {"n": argument})
            else:
                bound.append(toggle)
                table.bind(queues[queue], bound_key, {"n": argument})
        expected = {queues[q] for q, bound_key, _ in bound if fits(bound_key, key)}
        assert set(matched(table, key)) == expected

    check()


def test_destinations_come_in_the_order_of_binding():
    queues = [Queue(name) for name in "dbca"]
    for table in (DirectTable({}), FanoutTable({})):
        for queue in queues:
            table.bind(queue, "k", {})
        assert matched(table, "k") == queues


def test_a_direct_table_forgets_keys_without_bindings():
    table = DirectTable({})
    queue = Queue("q")
    table.bind(queue, "k", {})
    table.unbind(queue, "k", {})
    assert not table._by_key
