"""Messages of any size arrive as they were sent, or not at all."""

from random import Random

import pytest

from broker.cluster import parcels
from broker.cluster.kinds import Kind
from broker.cluster.mail import Key, Piece
from broker.cluster.parcels import Parcels, send_parcel
from queues.raft.messages import NodeId


class Wire:
    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def send(self, node: NodeId, kind: Kind, *pieces: Piece) -> None:
        self.messages.append(b"".join(pieces))

    def is_up(self, node: NodeId) -> bool:
        return True

    def up(self) -> set[NodeId]:
        return {2}

    def send_large(self, node: NodeId, key: Key, *pieces: Piece) -> None:
        self.send(node, key[0], *pieces)

    def carries(self, node: NodeId, key: Key) -> bool:
        return False

    def congested(self, node: NodeId, key: Key) -> bool:
        return False


def test_any_pieces_come_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PIECE_BYTES", 10)
    random = Random(1)
    for _ in range(300):
        sizes = [random.choice([0, 1, 9, 10, 11, 35]) for _ in range(random.randint(0, 6))]
        pieces = [random.randbytes(size) for size in sizes]
        wire, box = Wire(), Parcels()
        send_parcel(wire, 2, Kind.RAFT_BULK, pieces)
        assert max(map(len, wire.messages)) <= 2 * 10 + 1
        taken = [box.taken(1, message) for message in wire.messages]
        assert taken[:-1] == [None] * (len(taken) - 1)
        assert taken[-1] == b"".join(pieces)


def test_a_link_that_breaks_takes_half_a_parcel_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PIECE_BYTES", 10)
    wire, box = Wire(), Parcels()
    send_parcel(wire, 2, Kind.RAFT_BULK, [b"x" * 25])
    assert box.taken(1, wire.messages[0]) is None
    box.lost(1)
    assert box.taken(1, b"\0whole") == b"whole"


@pytest.mark.parametrize("messages", [[b""], [b"\3x"], [b"\1x", b"\3y"]])
def test_what_is_no_parcel_is_refused(messages: list[bytes]) -> None:
    box = Parcels()
    for message in messages[:-1]:
        box.taken(1, message)
    with pytest.raises(ValueError, match="parcel"):
        box.taken(1, messages[-1])


def test_a_parcel_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PARCEL_BYTES_MAX", 100)
    box = Parcels()
    for _ in range(10):
        box.taken(1, b"\1" + b"x" * 10)
    with pytest.raises(ValueError, match="more than 100"):
        box.taken(1, b"\1x")
