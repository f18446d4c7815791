"""The parts without I/O: attributes and headers, handles, addresses, what is remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.errors import ChannelError
from broker.protocol.tables import decode_table, join_table
from broker.security.passwords import SHA256
from broker.security.registry import Registry
from broker.security.user import AccessKey
from broker.sqs import receipts
from broker.sqs.attributes import Draft, set_attributes
from broker.sqs.duplicates import Duplicates
from broker.sqs.errors import SqsError
from broker.sqs.message_attributes import (
    Attribute,
    attributes_of,
    digest_of,
    headers_of,
    parse_attributes,
)
from broker.sqs.messages import Draft as MessageDraft
from broker.sqs.messages import Reading, make_message
from broker.sqs.names import Place, place_of, url_path
from broker.sqs.receipts import Receipt, Receipts, decode_handle
from tests.queues.fakes import message

UID = bytes(range(16))
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}(\.[a-z]{1,5})?", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("aws.", "amazon.", "x-", "cc", "bcc", "timestamp"))
)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"]), min_size=1)
TYPES = st.sampled_from(["", ".custom", ".a.b"])
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["1.50", "007", "+5", "-0", "1e5", ".5", "0", "-1"]),
)
ATTRIBUTES = st.one_of(
    st.builds(lambda t, v: Attribute(f"String{t}", v), TYPES, TEXT),
    st.builds(lambda t, v: Attribute(f"Number{t}", v), TYPES, NUMBERS),
    st.builds(lambda t, v: Attribute(f"Binary{t}", v), TYPES, st.binary(min_size=1)),
)


@given(st.dictionaries(NAMES, ATTRIBUTES, max_size=10))
def test_attributes_come_back_from_headers_just_as_they_were(attributes):
    shown = {name: one.shown() for name, one in attributes.items()}
    assert parse_attributes(shown) == attributes
    headers = decode_table(join_table(headers_of(attributes)))[0]
    back = attributes_of(headers)
    assert back == attributes
    assert digest_of(back) == digest_of(attributes)


@given(
    body=TEXT,
    attributes=st.dictionaries(NAMES, ATTRIBUTES, max_size=3),
    sender=st.text("abc", min_size=1),
)
def test_a_message_is_read_as_it_was_written(body, attributes, sender):
    draft = MessageDraft(id="an id", body=body.encode(), sender=sender, attributes=attributes)
    reading = Reading(make_message(draft, "q", 1_700_000_000_123), UID)
    assert reading.id == "an id"
    assert reading.body() == (body, False)
    assert reading.attributes(["All"], encoded=False) == attributes


# Handles


def receipt_of(table, sequence, *, failures=0):
    one = message(sequence)
    one.sequence, one.delivery_count = sequence, failures
    return table.issue(None, one, 0)


@given(st.integers(0, 2**64 - 1), st.binary(min_size=8, max_size=8), st.integers(0, 2**32 - 1))
def test_a_handle_is_what_it_was_made_of(sequence, session, number):
    receipt = Receipt(UID[:8], sequence, session, number, 3)
    assert decode_handle(receipt.encode(), UID) == receipt
    with pytest.raises(SqsError):
        decode_handle(receipt.encode(), bytes(16))


@given(st.text(max_size=60))
def test_no_other_text_is_a_handle(text):
    with pytest.raises(SqsError):
        decode_handle(text, UID)


def test_the_next_delivery_makes_the_last_receipt_worthless():
    table = Receipts(UID, b"session.")
    first = receipt_of(table, 5)
    assert table.find(first.receipt) is first
    assert table.came_back([first.message]) == [first.message]
    assert table.find(first.receipt) is None
    second = receipt_of(table, 5, failures=1)
    assert second.receipt != first.receipt
    assert table.supersedes(first.receipt)
    assert table.find(second.receipt) is second


def test_what_comes_back_late_is_told_from_what_came_back_in_time():
    table = Receipts(UID, b"session.")
    held = receipt_of(table, 5)
    assert not table.came_back([message(5)])  # another message of that number
    table.settled(held)
    assert not table.came_back([held.message])


@pytest.mark.parametrize(
    ("session", "failures_now", "good"),
    [
        (b"session.", 1, True),  # its time was over
        (b"session.", 2, False),  # somebody had it since
        (b"session.", 0, False),
        (b"another.", 0, True),  # the broker was started anew
        (b"another.", 1, False),
    ],
)
def test_a_receipt_is_good_until_somebody_else_has_the_message(session, failures_now, good):
    table = Receipts(UID, b"session.")
    waiting = message(5)
    waiting.delivery_count = failures_now
    assert table.still_good(Receipt(UID[:8], 5, session, 1, 0), waiting) is good


def test_when_a_message_was_received_first_is_remembered_for_many(monkeypatch):
    monkeypatch.setattr(receipts, "FIRSTS_MAX", 2)
    monkeypatch.setattr(receipts, "DELETED_MAX", 2)
    table = Receipts(UID, b"session.")
    held = [receipt_of(table, sequence) for sequence in range(3)]
    table.came_back([one.message for one in held])
    again = [table.issue(None, one.message, 99) for one in held]
    assert [one.first_ms for one in again] == [99, 0, 0]
    for one in again:
        table.deleted(one.receipt)
    assert [table.was_deleted(one.receipt) for one in again] == [False, True, True]


# Names, and what else there is


@given(st.text(min_size=1), st.text(min_size=1))
def test_the_address_of_a_queue_leads_back_to_it(vhost, name):
    try:
        vhost.encode(), name.encode()
    except UnicodeEncodeError:
        return
    assert place_of(f"http://host:1{url_path(Place(vhost, name))}", "x") == Place(vhost, name)


@given(st.text())
def test_any_other_address_is_a_name_or_refused(url):
    try:
        place = place_of(url, "here")
    except SqsError:
        return
    assert place.name


@given(st.dictionaries(st.sampled_from(["RedrivePolicy", "RedriveAllowPolicy"]), st.text()))
def test_any_text_is_a_policy_or_refused(attributes):
    draft = Draft({}, fifo=False)
    try:
        set_attributes(draft, attributes)
    except SqsError as error:
        assert error.is_senders_fault  # noqa: PT017 - both are fine


def test_only_the_latest_answers_are_remembered(monkeypatch):
    monkeypatch.setattr("broker.sqs.duplicates.ANSWERS_MAX", 2)
    known = Duplicates()
    for number in "123":
        known.remember(number.encode(), {"MessageId": number, "SequenceNumber": number})
    assert known.find(b"1") == {}
    assert known.find(b"3") == {"MessageId": "3", "SequenceNumber": "3"}


# Access keys among the definitions


class NoHosts:
    def user_gone(self, user):
        pass


def registry_with(*changes):
    registry = Registry({}, NoHosts())
    for change in (["user", "u", "", SHA256, []], ["user", "v", "", SHA256, []], *changes):
        registry.apply(change)
    return registry


def test_keys_are_in_what_is_written_and_taken_over():
    made = registry_with(["access-key", "u", "K1", "s1", 5], ["access-key", "v", "K2", "s2", 6])
    other = registry_with(["access-key", "u", "OLD", "s", 1], ["access-key", "v", "K1", "s", 1])
    other.replace(list(made.changes()))
    assert other.owner_of("K1").access_keys == {"K1": AccessKey("s1", 5)}
    assert other.owner_of("K2").name == "v"
    assert other.owner_of("OLD") is None
    assert list(other.changes()) == list(made.changes())


def test_a_key_is_one_users_and_goes_with_them():
    registry = registry_with(["access-key", "u", "K", "s", 5])
    with pytest.raises(ChannelError):
        registry.apply(["access-key", "v", "K", "mine now", 6])
    registry.apply(["access-key", "u", "K", "s", 5])  # as when it is replayed
    registry.apply(["-access-key", "v", "K"])
    assert registry.owner_of("K").name == "u"
    registry.apply(["-user", "u"])
    assert registry.owner_of("K") is None
    registry.apply(["access-key", "v", "K", "another", 7])
    assert registry.owner_of("K").name == "v"
    assert "another" not in repr(registry.owner_of("K").access_keys)
