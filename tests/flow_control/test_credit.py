"""Prefetch credit: a window, the most there may be, and what is fetched beside the window."""

import pytest

from flow_control.credit import UNLIMITED, Credit


@pytest.mark.parametrize(
    ("limit", "most", "used", "fetched", "room"),
    [
        (0, UNLIMITED, 5, 0, UNLIMITED - 5),
        (3, UNLIMITED, 1, 0, 2),
        (3, UNLIMITED, 5, 0, -2),  # the limit was lowered
        (3, UNLIMITED, 1, 9, 2),  # the window does not count what is fetched
        (0, 10, 4, 0, 6),
        (0, 10, 4, 5, 1),
        (3, 10, 0, 9, 1),
        (20, 10, 4, 0, 6),
    ],
)
def test_room_is_what_is_left_of_the_window_and_of_the_most(limit, most, used, fetched, room):
    credit = Credit(limit, most=most)
    credit.used, credit.fetched = used, fetched
    assert credit.room == room
    assert credit.full is (used + fetched >= most)
