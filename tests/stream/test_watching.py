"""Whoever waits for more in a partition is woken once, and only when there is more."""

from queues.stream.watching import Watchers


def test_a_watcher_is_woken_once_when_there_is_more_than_it_knows():
    watchers, woken = Watchers(), []
    watchers.add(5, lambda: woken.append("five"))
    watchers.add(7, lambda: woken.append("seven"))
    watchers.advanced(5)
    assert woken == []
    watchers.advanced(6)
    watchers.advanced(6)
    assert woken == ["five"]
    watchers.gone()
    assert woken == ["five", "seven"]
    assert len(watchers) == 0


def test_a_watch_can_be_ended_at_any_time():
    watchers, woken = Watchers(), []
    ends = []
    ends.append(watchers.add(0, lambda: (woken.append(1), ends[1]())))
    ends.append(watchers.add(0, lambda: woken.append(2)))
    watchers.advanced(1)
    assert woken == [1], "the first ended the second"
    for end in ends:
        end()


def test_one_that_watches_again_when_it_is_woken_waits_for_the_next():
    watchers, woken = Watchers(), []

    def wake():
        woken.append(len(woken))
        watchers.add(len(woken), wake)

    watchers.add(0, wake)
    watchers.gone()
    assert (woken, len(watchers)) == ([0], 1)
