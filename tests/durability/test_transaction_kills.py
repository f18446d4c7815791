"""Transactions through three kills; `python -m tests.durability.transaction_kills` does more."""

from tests.durability import transaction_kills
from tests.durability.transaction_kills import Book

SEED = 3


def test_no_transaction_is_ever_seen_in_part_or_twice(tmp_path):
    book = transaction_kills.run(tmp_path, kills=3, seed=SEED)
    assert not book.wrongs, transaction_kills.summary(book, SEED)
    assert len(book.committed) >= 30, "too little happened to prove anything"


def test_the_book_notices_every_kind_of_broken_word():
    book = Book()
    book.committed = [b"0", b"1"]
    book.cut([1, 1, 1])
    book.close([[b"0", b"1"], [b"0", b"1"]], 2)
    assert book.wrongs == []
    book.cut([2, 1, 2])
    book.cut([1, 1, 1])
    book.close([[b"0"], [b"0", b"1"]], 1)
    assert book.wrongs == [
        "a transaction is in some of its partitions only: [2, 1, 2]",
        "a cut at 1 after one at 2",
        "0: 1 rows, 2 committed",
        "the group stands at 1, not at 2",
    ]
