"""Killed five times under load; `python -m tests.durability.kills` does it longer."""

from tests.durability import kills
from tests.durability.ledger import Ledger, Name

SEED = 20


def test_a_broker_killed_again_and_again_keeps_its_word(tmp_path):
    ledger = kills.run(tmp_path, kills=5, seed=SEED)
    assert not ledger.wrongs, kills.summary(ledger, SEED)
    assert len(ledger.confirmed) > 500, "too little happened to prove anything"
    assert len(ledger.settled) > 100, "too little happened to prove anything"


def body(queue, publisher, number):
    return Name(queue, publisher, number).body(20)


def test_the_ledger_notices_every_kind_of_broken_word():
    ledger = Ledger()
    names = [ledger.publish("q", "p") for _ in range(4)]
    ledger.confirm(names)
    for name in names:
        ledger.deliver("q", name.body(20))
    ledger.ack(names[0])
    ledger.settle(names[:1])
    assert ledger.wrongs == []
    ledger.deliver("q", body("q", "p", 0))
    ledger.deliver("q", body("q", "p", 9))
    ledger.deliver("other", body("q", "p", 1))
    ledger.deliver("q", body("q", "p", 1) + b"!")
    ledger.close([names[2], names[1], names[1]])
    told = [wrong.partition(":")[0] for wrong in ledger.wrongs]
    assert told == [
        "came back after it was settled",
        "invented",
        "invented",
        "invented or damaged",
        "twice in the end",
        "lost",
        "out of order in the end",
        "out of order in the end",
    ]
