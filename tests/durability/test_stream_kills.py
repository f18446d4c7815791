"""Streams through three kills under load; `python -m tests.durability.stream_kills` does more."""

from tests.durability import stream_kills
from tests.durability.stream_kills import Book

SEED = 5


def test_producers_that_send_again_leave_no_duplicate_and_no_hole(tmp_path):
    book = stream_kills.run(tmp_path, kills=3, seed=SEED)
    assert not book.wrongs, stream_kills.summary(book, SEED)
    assert sum(book.confirmed.values()) > 500, "too little happened to prove anything"


def test_the_book_notices_every_kind_of_broken_word():
    book = Book()
    book.confirmed["a", 0] = 3
    book.take(0, 0, b"a 0 ")
    book.take(0, 1, b"a 1 ")
    book.close(0, [b"a 0 ", b"a 1 ", b"a 2 "])
    assert book.wrongs == []
    book.take(0, 3, b"a 3 ")
    book.close(0, [b"a 0 ", b"a 2 "])
    book.close(0, [b"a 0 ", b"a 1 ", b"a 3 ", b"a 3 ", b"a 3 "])
    assert book.wrongs == [
        "0: offset 3 after 2",
        "0: not what a reader saw before",
        "0: a 2 where 1 belongs",
        "0: a 3 where 2 belongs",
        "0: a 3 where 4 belongs",
        "0: a 3 where 4 belongs",
    ]
    book.close(0, [b"a 0 ", b"a 1 "])
    assert book.wrongs[-1] == "0: a has 2, 3 confirmed"
