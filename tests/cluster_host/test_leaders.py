"""Who leads which log, as one node hears it."""

import pytest

from broker.cluster.kinds import Kind
from broker.cluster.leaders import LeaderBook
from broker.cluster.mail import Key, Piece
from queues.raft.messages import NodeId

A, B = b"A" * 16, b"B" * 16


class Office:
    """The books of three nodes; what one sends the others get when told."""

    def __init__(self, me: NodeId, offices: "dict[NodeId, Office]") -> None:
        self.me = me
        self.offices = offices
        self.book = LeaderBook(me, self)
        self.reachable = {1, 2, 3} - {me}
        offices[me] = self

    def send(self, node: NodeId, kind: Kind, *pieces: Piece) -> None:
        assert kind is Kind.LEADS
        self.offices[node].book.received(self.me, b"".join(pieces))

    def is_up(self, node: NodeId) -> bool:
        return node in self.reachable

    def up(self) -> set[NodeId]:
        return self.reachable

    def send_large(self, node: NodeId, key: Key, *pieces: Piece) -> None:
        self.send(node, key[0], *pieces)

    def carries(self, node: NodeId, key: Key) -> bool:
        return False

    def congested(self, node: NodeId, key: Key) -> bool:
        return False


def books() -> list[LeaderBook]:
    offices: dict[NodeId, Office] = {}
    return [Office(me, offices).book for me in (1, 2, 3)]


def test_a_node_that_leads_is_known_everywhere_until_it_does_no_more() -> None:
    one, two, three = books()
    heard: list[NodeId | None] = []
    three.watch(A, heard.append)
    one.i_lead(A, 4)
    assert [book.leader_of(A) for book in (one, two, three)] == [1, 1, 1]
    one.i_lead_no_more(A, 4)
    assert [book.leader_of(A) for book in (one, two, three)] == [None, None, None]
    two.i_lead(A, 5)
    two.i_lead(A, 6)
    three.unwatch(A, heard.append)
    assert heard == [1, None, 2]
    assert three.term_of(A) == 6


def test_late_news_of_an_earlier_term_changes_nothing() -> None:
    one, two, three = books()
    two.i_lead(A, 5)
    one.i_lead(A, 4)
    assert three.leader_of(A) == 2
    assert three.received(1, b"".join([A, (4).to_bytes(8), b"\0"])) == []
    assert three.leader_of(A) == 2
    assert three.received(2, b"".join([A, (5).to_bytes(8), b"\0"])) == [A]
    assert three.leader_of(A) is None


def test_what_a_lost_node_led_has_no_leader_until_it_is_back() -> None:
    one, two, three = books()
    one.i_lead(A, 1)
    two.i_lead(B, 1)
    three.node_down(1)
    assert (three.leader_of(A), three.leader_of(B)) == (None, 2)
    one.node_up(3)
    assert three.leader_of(A) == 1


def test_what_lives_on_one_node_is_led_there() -> None:
    one, _, three = books()
    one.fix(A, 3)
    assert one.leader_of(A) == 3
    one.node_down(3)
    assert one.leader_of(A) == 3
    one.forget(A)
    assert one.leader_of(A) is None
    assert three.leader_of(A) is None


def test_a_list_of_the_wrong_length_is_refused() -> None:
    one, _, _ = books()
    with pytest.raises(ValueError, match="length"):
        one.received(2, b"x" * 26)


def size_of(book: LeaderBook) -> int:
    return len(book._leads) + len(book._fixed) + len(book._mine) + len(book._watchers)


def test_nothing_is_left_of_a_log_that_is_deleted_whatever_late_news_says() -> None:
    one, two, three = books()
    watcher: list[NodeId | None] = []
    for book in (one, two, three):
        book.fix(B, 2)
        book.watch(A, watcher.append)
    one.i_lead(A, 3)
    for book in (three, two, one):
        book.unwatch(A, watcher.append)
        book.forget(A)
        book.forget(B)
    one.i_lead_no_more(A, 3)
    two.heard(A, 4, 3)
    one.i_lead(A, 5)
    one.node_up(2)
    assert [size_of(book) for book in (one, two, three)] == [0, 0, 0]
    assert one.leader_of(B) is None


def test_what_is_remembered_of_deleted_logs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.cluster.leaders.FORGOTTEN_MAX", 100)
    one, _, _ = books()
    for number in range(1000):
        uid = number.to_bytes(16)
        one.i_lead(uid, 1)
        one.forget(uid)
    assert size_of(one) == 0
    assert len(one._forgotten) == 100
