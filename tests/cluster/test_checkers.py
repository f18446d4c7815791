"""The checkers find what is planted in a history, and nothing in a sound one."""

import math
import random

import pytest

from tests.cluster.checkers import check_queue, check_stream
from tests.cluster.histories import (
    Delivery,
    Key,
    Outcome,
    QueueHistory,
    StreamHistory,
    StreamRead,
    body_of,
    key_of,
)
from tests.cluster.linearizable import ABSENT, UNKNOWN, Operation, check_metadata, step_queue

ONE, TWO = "00" * 8, "11" * 8


def test_a_body_names_its_message_and_a_damaged_one_names_none() -> None:
    key = Key(ONE, 7)
    body = body_of(key, 100)
    assert len(body) == 100
    assert key_of(body) == key
    assert key_of(body[:-1]) is None
    assert key_of(b"\x01" + body[1:]) is None
    assert key_of(body[:50] + b"\x01" + body[51:]) is None
    assert key_of(b"") is None


def queue(*deliveries: tuple[str, str, int, bool], confirmed: int = 3) -> QueueHistory:
    """Three messages of session one; the first `confirmed` are, of the rest nothing is known."""
    history = QueueHistory("q")
    keys = [Key(ONE, number) for number in range(3)]
    history.published(keys)
    history.heard(keys[:confirmed], Outcome.CONFIRMED)
    for consumer, session, number, redelivered in deliveries:
        history.delivered(Delivery(consumer, Key(session, number), redelivered))
    return history


SOUND = [("c", ONE, 0, False), ("c", ONE, 1, False), ("c", ONE, 2, False)]


@pytest.mark.parametrize(
    "history",
    [
        queue(*SOUND),
        queue(*SOUND[:2], confirmed=2),  # unknown: not there
        queue(*SOUND, confirmed=2),  # unknown: there
        queue(*SOUND, ("d", ONE, 0, True), ("d", ONE, 0, True)),  # again, with the flag
        queue(("c", ONE, 0, True), *SOUND[1:]),  # its first delivery died with a connection
        queue(("c", ONE, 2, False), ("d", ONE, 0, False), ("d", ONE, 1, False)),  # two consumers
        queue(*SOUND[:2], ("c", ONE, 0, True), SOUND[2]),
    ],
)
def test_a_sound_queue_is_found_sound(history: QueueHistory) -> None:
    assert check_queue(history) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (queue(*SOUND[:2]), "1 confirmed lost"),
        (queue(), "3 confirmed lost"),
        (queue(*SOUND, ("c", TWO, 0, False)), "1 never published"),
        (queue(*SOUND, ("c", ONE, 3, False)), "1 never published"),
        (queue(*SOUND, ("d", ONE, 0, False)), "1 came again without redelivered"),
        (queue(SOUND[0], SOUND[2], SOUND[1]), "1 out of order"),
    ],
)
def test_what_is_wrong_with_a_queue_is_found(history: QueueHistory, problem: str) -> None:
    (found,) = check_queue(history)
    assert problem in found


def test_a_damaged_body_is_found() -> None:
    history = queue(*SOUND)
    history.delivered(Delivery("c", None, redelivered=False))
    assert check_queue(history) == ["q: 1 bodies are damaged or foreign"]


def test_a_refused_message_may_be_there_or_not() -> None:
    for deliveries in (SOUND, SOUND[:2]):
        history = queue(*deliveries, confirmed=2)
        history.heard([Key(ONE, 2)], Outcome.REFUSED)
        assert check_queue(history) == []


def stream(*reads: tuple[str, int, int]) -> StreamHistory:
    history = StreamHistory("s")
    keys = [Key(ONE, number) for number in range(3)]
    history.published(keys)
    history.heard(keys, Outcome.CONFIRMED)
    for reader, offset, number in reads:
        history.read(StreamRead(reader, offset, Key(ONE, number)))
    return history


ALL = [("r", 0, 0), ("r", 1, 1), ("r", 2, 2)]


def test_a_sound_stream_is_found_sound() -> None:
    assert check_stream(stream(*ALL)) == []
    assert check_stream(stream(*ALL, *[("s", *rest) for _, *rest in ALL])) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (stream(*ALL[:2]), "s, reader r: 1 confirmed lost"),
        (stream(), "s: 3 confirmed lost"),
        (stream(*ALL, *[("s", *rest) for _, *rest in ALL[:1]]), "s, reader s: 2 confirmed lost"),
        (stream(("r", 0, 0), ("r", 2, 1), ("r", 3, 2)), "got offset 2 instead of 1"),
        (stream(*ALL, ALL[2]), "got offset 2 instead of 3"),
        (stream(("r", 1, 0), ("r", 2, 1), ("r", 3, 2)), "got offset 1 instead of 0"),
        (stream(*ALL, ("s", 0, 0), ("s", 1, 2), ("s", 2, 1)), "at offset 1 is"),
        (stream(*ALL, ("r", 3, 1)), "at offset 3 comes after number 2"),
        (stream(("r", 0, 0), ("r", 1, 2), ("r", 2, 1)), "at offset 2 comes after number 2"),
        (stream(*ALL, ("r", 3, 9)), "1 never published"),
    ],
)
def test_what_is_wrong_with_a_stream_is_found(history: StreamHistory, problem: str) -> None:
    assert any(problem in found for found in check_stream(history)), check_stream(history)


def op(action: str, result: str, called: float, returned: float = math.inf) -> Operation:
    word, _, argument = action.partition(" ")
    return Operation("q", word, argument, result, called, returned)


@pytest.mark.parametrize(
    "history",
    [
        [op("declare", "ok", 0, 1), op("look", "ok", 2, 3), op("delete", "ok", 4, 5)],
        [op("look", "absent", 0, 1), op("declare", "ok", 2, 3), op("look", "ok", 4, 5)],
        # At the same time, either order will do.
        [op("declare", "ok", 0, 5), op("look", "absent", 1, 2), op("look", "ok", 3, 4)],
        # Nobody knows whether it happened: it may have, much later, or not at all.
        [op("declare", UNKNOWN, 0), op("look", "absent", 1, 2), op("look", "ok", 3, 4)],
        [op("declare", UNKNOWN, 0), op("look", "absent", 1, 2), op("look", "absent", 3, 4)],
        [
            op("declare", "ok", 0, 1),
            op("bind k", "ok", 2, 3),
            op("probe k", "yes", 4, 5),
            op("delete", "ok", 6, 7),
            op("declare", "ok", 8, 9),
            op("probe k", "no", 10, 11),
        ],
    ],
)
def test_what_one_order_explains_is_accepted(history: list[Operation]) -> None:
    assert check_metadata(history) == []


@pytest.mark.parametrize(
    "history",
    [
        # A stale read, on whatever node.
        [op("declare", "ok", 0, 1), op("look", "absent", 2, 3)],
        [op("declare", "ok", 0, 1), op("delete", "ok", 2, 3), op("look", "ok", 4, 5)],
        # Seen, and then not seen any more, though nobody deleted it.
        [op("declare", "ok", 0, 9), op("look", "ok", 1, 2), op("look", "absent", 3, 4)],
        [op("declare", UNKNOWN, 0), op("look", "ok", 1, 2), op("look", "absent", 3, 4)],
        # Before it was asked for.
        [op("look", "ok", 0, 1), op("declare", "ok", 2, 3)],
        # A bind that does not route yet.
        [op("declare", "ok", 0, 1), op("bind k", "ok", 2, 3), op("probe k", "no", 4, 5)],
        [op("bind k", "ok", 0, 1)],
        # A binding that came back with a queue that was deleted.
        [
            op("declare", "ok", 0, 1),
            op("bind k", "ok", 2, 3),
            op("delete", "ok", 6, 7),
            op("declare", "ok", 8, 9),
            op("probe k", "yes", 10, 11),
        ],
    ],
)
def test_what_no_order_explains_is_refused(history: list[Operation]) -> None:
    (problem,) = check_metadata(history)
    assert "no order explains" in problem


@pytest.mark.parametrize("seed", range(10))
def test_histories_of_a_true_register_are_accepted_and_a_flipped_result_is_not(seed: int) -> None:
    """Three clients at once: effects at random moments within their calls.

    With odd seeds some are never heard of, and so could have happened at the very end.
    """
    chance = random.Random(seed)
    effects = []
    for client in range(3):
        now = chance.random()
        for _ in range(40):
            word = chance.choice(["declare", "delete", "look", "bind k", "unbind k", "probe k"])
            called, effect = now, now + chance.random()
            returned = effect + chance.random()
            effects.append((effect, called, returned, f"c{client}", word))
            now = returned + chance.random() / 10
    state: frozenset[str] | None = ABSENT
    history: list[Operation] = []
    for _, called, returned, client, word in sorted(effects):
        action, _, argument = word.partition(" ")
        for result in ("ok", "absent", "yes", "no"):
            one = Operation("q", action, argument, result, called, returned, client)
            wrong_word = (action == "probe") != (result in ("yes", "no"))
            if not wrong_word and (after := step_queue(state, one)):
                state = after[0]
                break
        else:
            pytest.fail(f"no result fits {word}")
        if seed % 2 and chance.random() < 0.1:
            one = Operation("q", action, argument, UNKNOWN, called, math.inf, client)
        history.append(one)
    assert check_metadata(history) == []
    # A look that nothing ran beside cannot be told otherwise.
    end = max(returned for _, _, returned, _, _ in effects if returned < math.inf)
    truth, lie = ("ok", "absent") if state is not None else ("absent", "ok")
    if not seed % 2:
        assert check_metadata([*history, op("look", truth, end + 1, end + 2)]) == []
        assert check_metadata([*history, op("look", lie, end + 1, end + 2)]) != []
