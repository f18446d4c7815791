"""What a member may commit, against a model that remembers every record's fate."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.stream.watermark import Watermark

START = 5


class WatermarkModel(RuleBasedStateMachine):
    """A reader that goes over the records one by one; `fate` has those that it looked at."""

    def __init__(self):
        super().__init__()
        self.mark = Watermark(START)
        self.fate = {}
        self.at = START

    def _of(self, fate):
        return sorted(offset for offset, found in self.fate.items() if found == fate)

    @rule(wanted=st.lists(st.booleans(), min_size=1, max_size=8))
    def read_on(self, wanted):
        """Records are looked at in order; a filter keeps some of the new ones back."""
        delivered = []
        for passes in wanted:
            offset, self.at = self.at, self.at + 1
            new = offset not in self.fate
            expected = new or self.fate[offset] == "again"
            assert self.mark.wants(offset) == expected
            if expected and (passes or not new):
                delivered.append(offset)
                self.fate[offset] = "held"
            elif new:
                self.fate[offset] = "done"
        self.mark.passed(delivered, self.at)

    @precondition(lambda self: self._of("held"))
    @rule(data=st.data(), back=st.booleans())
    def settle(self, data, back):
        held = self._of("held")
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
        for offset in chosen:
            self.fate[offset] = "again" if back else "done"
        if back:
            self.mark.requeue(chosen)
            self.at = self.mark.resume
            assert self.at == self._of("again")[0]
        else:
            self.mark.ack(chosen)

    @precondition(lambda self: self._of("again"))
    @rule(size=st.integers(1, 4))
    def find_that_records_are_gone(self, size):
        """Compaction may take records that should go out again."""
        end = self.at + size
        for offset in range(self.at, end):
            if self.fate.get(offset, "again") == "again":
                self.fate[offset] = "done"
        self.at = end
        self.mark.passed([], end)

    @rule()
    def acks_of_what_is_not_held_do_not_count(self):
        others = [offset for offset, found in self.fate.items() if found == "again"]
        self.mark.ack([*others, max(self.fate, default=START) + 1])

    @invariant()
    def nothing_open_is_before_the_position(self):
        end = max(self.fate, default=START - 1) + 1
        unsettled = [*self._of("held"), *self._of("again")]
        assert self.mark.position == min(unsettled, default=end)
        assert self.mark.held == len(self._of("held"))
        assert self.mark.seen == end


TestWatermark = WatermarkModel.TestCase


def test_what_another_member_was_given_counts_as_seen():
    mark = Watermark(10, seen=40)
    mark.passed(range(10, 20), 20)
    assert mark.seen == 40
    mark.passed(range(20, 50), 50)
    assert mark.seen == 50
