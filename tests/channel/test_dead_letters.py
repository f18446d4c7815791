"""Dead letters: x-death as RabbitMQ writes it, cycles, CC and BCC, and made-up headers."""

from datetime import UTC, datetime

import pytest
from pamqp import commands

from broker import dead_letter
from broker.protocol.constants import BASIC_REJECT
from tests.channel.fakes import (
    Client,
    FakeLink,
    body_of,
    declare,
    declare_exchange,
    fetch,
    properties_of,
    stored_message,
    to,
)

Properties = commands.Basic.Properties
NOW_MS = 1_700_000_000_999
NOW = datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.fixture
def link():
    return FakeLink()


@pytest.fixture
def queue(link):
    return declare(link, "q", x_dead_letter_exchange="dlx")


def headers_of(message):
    return properties_of(message).headers


def test_a_first_death_is_told_in_full(queue):
    properties = Properties(
        headers={"k": 0.1}, expiration="60000", message_id="m", delivery_mode=2, priority=4
    )
    message = stored_message(b"body", properties, exchange="e", key="r")
    message.priority = 4
    letter = dead_letter.bury(message, queue, "expired", NOW_MS)
    assert headers_of(letter)["x-death"] == [
        {
            "count": 1,
            "reason": "expired",
            "queue": "q",
            "time": NOW,
            "exchange": "e",
            "routing-keys": ["r"],
            "original-expiration": "60000",
        }
    ]
    seen = properties_of(letter)
    assert (seen.expiration, seen.message_id, seen.delivery_mode, seen.priority) == (
        None,
        "m",
        2,
        4,
    )
    assert (letter.priority, letter.expires_at, body_of(letter)) == (4, None, b"body")
    assert dead_letter.split_address(letter.address) == ("dlx", "r")
    for when in ("first", "last"):
        told = [
            headers_of(letter)[f"x-{when}-death-{what}"] for what in ("queue", "reason", "exchange")
        ]
        assert told == ["q", "expired", "e"]


def test_what_is_not_touched_is_kept_to_the_bit(queue):
    message = stored_message(b"", Properties(headers={"a": 0.5, "z": 7}))
    raw = message.properties()[0x2000][4:]
    assert raw in dead_letter.bury(message, queue, "rejected", NOW_MS).frames


def test_a_message_without_headers_gets_them(queue):
    letter = dead_letter.bury(stored_message(b"body"), queue, "rejected", NOW_MS)
    assert headers_of(letter)["x-death"][0]["reason"] == "rejected"
    assert "original-expiration" not in headers_of(letter)["x-death"][0]


def buried(message, deaths):
    """The letter after deaths given as (queue, reason), a second apart."""
    for after, (queue, reason) in enumerate(deaths):
        message = dead_letter.bury(message, queue, reason, NOW_MS + after * 1000)
    return message


def test_deaths_are_counted_by_queue_and_reason_the_newest_first(link, queue):
    other = declare(link, "other", x_dead_letter_exchange="dlx")
    deaths = [(queue, "expired"), (other, "expired"), (queue, "expired"), (queue, "rejected")]
    letter = buried(stored_message(key="r"), deaths)
    told = [(d["queue"], d["reason"], d["count"]) for d in headers_of(letter)["x-death"]]
    assert told == [("q", "rejected", 1), ("q", "expired", 2), ("other", "expired", 1)]
    times = [d["time"].second - NOW.second for d in headers_of(letter)["x-death"]]
    assert times == [3, 0, 1]  # of the first death of each kind
    assert headers_of(letter)["x-first-death-reason"] == "expired"
    assert headers_of(letter)["x-first-death-queue"] == "q"
    assert headers_of(letter)["x-last-death-reason"] == "rejected"


def test_a_count_is_written_with_64_bits(queue):
    letter = buried(stored_message(), [(queue, "expired")] * 3)
    assert b"\x05countl" + (3).to_bytes(8, "big") in letter.frames


def test_the_keys_of_cc_are_told_and_those_of_bcc_are_not(queue):
    headers = {"CC": ["c1", "c2"], "BCC": ["secret"]}
    letter = dead_letter.bury(
        stored_message(properties=Properties(headers=headers), key="r"), queue, "rejected", NOW_MS
    )
    assert headers_of(letter)["x-death"][0]["routing-keys"] == ["r", "c1", "c2"]
    assert headers_of(letter)["CC"] == ["c1", "c2"]
    assert "BCC" not in headers_of(letter)


def test_a_dead_letter_key_replaces_key_and_cc(link):
    queue = declare(link, "k", x_dead_letter_exchange="", x_dead_letter_routing_key="there")
    message = stored_message(properties=Properties(headers={"CC": ["c"]}), key="r")
    letter = dead_letter.bury(message, queue, "maxlen", NOW_MS)
    assert dead_letter.split_address(letter.address) == ("", "there")
    assert "CC" not in headers_of(letter)
    assert headers_of(letter)["x-death"][0]["routing-keys"] == ["r", "c"]


def test_the_message_that_died_is_not_changed(queue):
    message = stored_message(b"body", Properties(headers={"k": 1}, expiration="5"))
    before = message.frames
    dead_letter.bury(message, queue, "expired", NOW_MS)
    assert message.frames == before


def test_a_letter_can_die_again_after_it_went_through_other_channels(link, queue):
    letter = buried(stored_message(b"body", channel=7), [(queue, "expired")] * 2)
    assert letter.channel == 7
    assert body_of(letter) == b"body"
    assert headers_of(letter)["x-death"][0]["count"] == 2


# Cycles


CYCLES = {
    "it never died": ([], False),
    "it died elsewhere": ([("other", "expired")], False),
    "it died here before": ([("q", "expired")], True),
    "it died here and then elsewhere": ([("q", "maxlen"), ("other", "expired")], True),
    "it was rejected here": ([("q", "rejected")], False),
    "it was rejected since": ([("q", "expired"), ("other", "rejected")], False),
    "it was rejected before": ([("other", "rejected"), ("q", "expired")], True),
    "it died here again after a rejection": (
        [("q", "expired"), ("other", "rejected"), ("q", "expired")],
        True,
    ),
}


@pytest.mark.parametrize("history", CYCLES)
def test_a_letter_has_gone_full_circle_unless_a_consumer_rejected_it(link, history):
    deaths, is_cycle = CYCLES[history]
    queues = {name: declare(link, name, x_dead_letter_exchange="dlx") for name in ("q", "other")}
    letter = buried(stored_message(), [(queues[name], reason) for name, reason in deaths])
    assert dead_letter.is_cycle(letter, "q") is is_cycle


def test_a_queue_that_dead_letters_to_itself_drops_what_expires_and_keeps_what_is_rejected(link):
    queue = declare(link, "q", x_dead_letter_exchange="", x_max_length=1)
    client = Client(link)
    client.publish(to("q", b"1"), to("q", b"2"))
    assert [body_of(m) for m in fetch(queue)] == [b"2"]
    client.publish(to("q", b"3"))
    client.call(commands.Basic.Get, queue="q")
    client.settle(BASIC_REJECT, (1, 0))
    assert [body_of(m) for m in fetch(queue)] == [b"3"]


# Where letters go


def test_letters_are_routed_by_key_and_cc_to_each_queue_once(link):
    declare_exchange(link, "dlx", "topic")
    queue = declare(link, "q", x_dead_letter_exchange="dlx", x_max_length=0)
    targets = [declare(link, name) for name in ("one", "two", "none")]
    link.vhost.bind("dlx", targets[0], "q", {})
    link.vhost.bind("dlx", targets[0], "copy", {})
    link.vhost.bind("dlx", targets[1], "copy", {})
    Client(link).publish(to("q", b"dead", Properties(headers={"CC": ["copy"]})))
    assert queue.ready == 0
    assert [target.ready for target in targets] == [1, 1, 0]


def test_letters_to_an_exchange_that_is_not_there_are_dropped(link):
    queue = declare(link, "q", x_dead_letter_exchange="missing", x_max_length=0)
    Client(link).publish(to("q"))
    assert queue.ready == 0


def test_a_chain_of_deaths_is_followed_to_its_end(link):
    """Each queue is full at once, and its dead letters fill the next."""
    for n in range(60):
        declare(
            link,
            f"q{n}",
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=f"q{n + 1}",
            x_max_length=0,
        )
    end = declare(link, "q60")
    Client(link).publish(to("q0", b"far"), to("q0", b"away"))
    letters = fetch(end)
    assert [body_of(m) for m in letters] == [b"far", b"away"]
    assert len(headers_of(letters[0])["x-death"]) == 60


# Headers that a client made up


MADE_UP = {
    "a string": "x",
    "a number": 5,
    "an array of strings": ["x"],
    "an empty array": [],
    "a table without fields": [{}],
    "other types of fields": [{"queue": 5, "reason": ["expired"], "count": "many"}],
    "a count that is a string": [{"queue": "q", "reason": "expired", "count": "many"}],
    "a count that cannot grow": [{"queue": "q", "reason": "expired", "count": 2**63 - 1}],
    "a negative count": [{"queue": "q", "reason": "expired", "count": -5}],
}


@pytest.mark.parametrize("value", MADE_UP.values(), ids=MADE_UP)
def test_a_made_up_history_does_no_harm(queue, value):
    message = stored_message(b"body", Properties(headers={"x-death": value, "CC": 5}))
    letter = dead_letter.bury(message, queue, "expired", NOW_MS)
    newest = headers_of(letter)["x-death"][0]
    assert (newest["queue"], newest["reason"]) == ("q", "expired")
    assert isinstance(newest["count"], int)
    assert dead_letter.is_cycle(letter, "other") is False


def test_an_unsigned_count_that_cannot_grow_does_no_harm(queue):
    message = stored_message(
        properties=Properties(
            headers={"x-death": [{"queue": "q", "reason": "expired", "count": 2**62}]}
        )
    )
    raw = message.frames.replace(b"\x05countl\x40" + bytes(7), b"\x05countL" + b"\xff" * 8)
    assert raw != message.frames
    message.frames = raw
    letter = dead_letter.bury(message, queue, "expired", NOW_MS)
    assert headers_of(letter)["x-death"][0]["count"] == 2**63 - 1
