"""Confirms: whatever order queues answer in, each publish is answered once and rightly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.channel.confirms import ConfirmTracker
from tests.queues.fakes import message


class Peer:
    """What the publisher makes of the answers it gets."""

    def __init__(self):
        self.answers = {}  # tag → whether it was an ack
        self.sent = []
        self.published = 0
        self.open = set()  # tags that not every queue has answered for

    def answer(self, tag, *, multiple, positive):
        self.sent.append((tag, multiple, positive))
        assert 1 <= tag <= self.published
        covered = range(1, tag + 1) if multiple else [tag]
        fresh = [number for number in covered if number not in self.answers]
        assert fresh, "an answer that says nothing"
        assert multiple or tag not in self.answers, "answered twice"
        assert not self.open.intersection(fresh), "answered before all queues had it"
        self.answers.update(dict.fromkeys(fresh, positive))


def refusals(tags):
    """Messages as a queue refuses them: still with the number that the publisher gave them."""
    refused = []
    for tag in tags:
        refused.append(message(tag))
        refused[-1].sequence = tag
    return refused


# How many messages each read brings, and to how many queues they go.
READS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=6)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(READS, st.data())
def test_each_tag_is_answered_once_and_rightly_whatever_the_order(reads, data):
    peer = Peer()
    tracker = ConfirmTracker(peer.answer)
    pending = []  # one per receipt: [receipt, queues still to answer]
    refused = set()

    def resolve(entry):
        receipt, left = entry
        entry[1] = left - 1
        tags = range(receipt.first, receipt.last + 1)
        chosen = [tag for tag in tags if data.draw(st.integers(0, 5)) == 0] if tags else []
        refused.update(chosen)
        if entry[1] == 0:
            pending.remove(entry)
            peer.open.difference_update(tags)
        receipt.stored(refusals(chosen))

    for count, queues in reads:
        receipt = tracker.begin()
        receipt.last += count
        receipt.open += queues
        peer.published += count
        peer.open.update(range(receipt.first, receipt.last + 1))
        tracker.next_tag = receipt.last + 1
        entry = [receipt, queues]
        if queues:
            pending.append(entry)
        else:
            peer.open.difference_update(range(receipt.first, receipt.last + 1))
        receipt.stored([])  # the publisher itself is through
        while pending and data.draw(st.booleans()):
            resolve(data.draw(st.sampled_from(pending)))
    while pending:
        resolve(data.draw(st.sampled_from(pending)))
    assert peer.answers == {tag: tag not in refused for tag in range(1, peer.published + 1)}


def test_a_read_that_is_safe_at_once_costs_one_ack():
    peer = Peer()
    tracker = ConfirmTracker(peer.answer)
    for count in (3, 1, 2):
        receipt = tracker.begin()
        receipt.last += count
        peer.published += count
        tracker.next_tag = receipt.last + 1
        receipt.stored([])
    assert peer.sent == [(3, True, True), (4, False, True), (6, True, True)]


def test_multiple_goes_up_to_the_smallest_open_tag_only():
    peer = Peer()
    tracker = ConfirmTracker(peer.answer)
    receipts = []
    for _ in range(3):
        receipts.append(tracker.begin())
        receipts[-1].last += 2
        tracker.next_tag += 2
        peer.published += 2
    receipts[1].stored([])
    assert peer.sent == [(3, False, True), (4, False, True)]
    receipts[0].stored([])
    receipts[2].stored([])
    assert peer.sent[2:] == [(2, True, True), (6, True, True)]


def test_one_refusal_among_many_is_a_nack_of_its_own():
    peer = Peer()
    tracker = ConfirmTracker(peer.answer)
    receipt = tracker.begin()
    receipt.last += 3
    peer.published = 3
    receipt.stored(refusals([2]))
    assert peer.answers == {1: True, 2: False, 3: True}
