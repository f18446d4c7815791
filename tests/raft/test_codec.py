"""Messages as bytes: every message comes back as it went, and bad bytes are one kind of error."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.raft.codec import CodecError, Tails, decode_bundle, encode_bundle
from queues.raft.config import CONFIG_MARK, Config, ConfigError, config_of
from queues.raft.messages import (
    Append,
    AppendReply,
    Entry,
    Install,
    PreVote,
    PreVoteReply,
    Snapshot,
    TimeoutNow,
    Vote,
    VoteReply,
)

HERE, THERE = 7, 9
U64 = st.integers(0, 2**64 - 1)
FLAG = st.booleans()
UID = st.binary(min_size=16, max_size=16)
NODES = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9, unique=True)


@st.composite
def configs(draw):
    nodes = draw(NODES)
    voters = draw(st.integers(1, len(nodes)))
    return Config(tuple(nodes[:voters]), tuple(nodes[voters:]))


@st.composite
def appends(draw):
    terms = sorted(draw(st.lists(U64, min_size=2, max_size=8)))
    payloads = st.sampled_from((b"", b"p", b"payload" * 50))
    prev = draw(st.integers(0, 2**60))
    entries = [
        Entry(prev + 1 + place, term, draw(payloads)) for place, term in enumerate(terms[1:-1])
    ]
    return Append(HERE, THERE, terms[-1], prev, terms[0], entries, draw(U64), draw(U64))


def ours(kind, *fields):
    return st.builds(kind, st.just(HERE), st.just(THERE), *fields)


SNAPSHOTS = st.builds(Snapshot, U64, U64, configs(), st.binary(max_size=100))
MESSAGES = st.one_of(
    ours(PreVote, U64, U64, U64),
    ours(PreVoteReply, U64, FLAG),
    ours(Vote, U64, U64, U64, FLAG),
    ours(VoteReply, U64, FLAG),
    appends(),
    ours(AppendReply, U64, FLAG, U64, U64, U64, U64, U64),
    ours(Install, U64, SNAPSHOTS),
    ours(TimeoutNow, U64),
)
BUNDLES = st.lists(st.tuples(UID, MESSAGES), max_size=6)


def encoded(items):
    return b"".join(encode_bundle(items, Tails()))


@settings(max_examples=300)
@given(BUNDLES, st.sampled_from((bytes, memoryview)))
def test_a_bundle_comes_back_as_it_went(items, kind):
    found = decode_bundle(kind(encoded(items)), HERE, THERE)
    assert found == items
    for _, message in found:
        for entry in getattr(message, "entries", ()):
            assert type(entry.payload) is bytes


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes_are_a_bundle_or_one_kind_of_error(junk, kind):
    for body in (junk, bytes([kind]) + junk, memoryview(junk)):
        try:
            found = decode_bundle(body, HERE, THERE)
        except CodecError:
            continue
        assert encoded(found) or not body


@settings(max_examples=300)
@given(BUNDLES, st.data())
def test_a_bundle_that_is_cut_or_changed_is_read_or_refused_and_never_more(items, data):
    body = encoded(items)
    cut = data.draw(st.integers(0, len(body)))
    place = data.draw(st.integers(0, max(len(body) - 1, 0)))
    flipped = bytearray(body)
    if flipped:
        flipped[place] ^= data.draw(st.integers(1, 255))
    for bad in (body[:cut], bytes(flipped), body + b"\0"):
        with suppress(CodecError):
            decode_bundle(bad, HERE, THERE)


def test_entries_for_two_followers_are_encoded_once_and_payloads_are_not_copied():
    entries = [Entry(1, 1, b"payload"), Entry(2, 1, b"")]
    tails = Tails()
    bundles = [
        encode_bundle([(b"u" * 16, Append(to, 1, 1, 0, 0, entries, 0, 0))], tails) for to in (2, 3)
    ]
    assert all(one is other for one, other in zip(bundles[0][1:], bundles[1][1:], strict=True))
    assert any(piece is entries[0].payload for piece in bundles[0])


def test_terms_that_fall_are_refused():
    bad = Append(HERE, THERE, 5, 1, 3, [Entry(2, 2, b"x")], 0, 0)
    with pytest.raises(CodecError, match="terms"):
        decode_bundle(encoded([(b"u" * 16, bad)]), HERE, THERE)


@given(configs())
def test_a_configuration_comes_back_from_its_entry(config):
    assert config_of(config.entry()) == config
    for cut in (config.entry()[:-1], config.entry() + b"\0"):
        with pytest.raises(ConfigError):
            config_of(cut)


@pytest.mark.parametrize("payload", [b"", b"\x01 a command", b"\x9a cbor", CONFIG_MARK[:7]])
def test_other_entries_are_no_configuration(payload):
    assert config_of(payload) is None
