"""Raft messages as bytes, many groups' in one bundle. Sender and receiver are the link's to know.

A bundle is one message after the other, numbers big-endian:

    offset 0   u8        kind of message
           1   16 bytes  uid of the group
          17   u64       term
          25   …         what the kind's struct below says

An Append goes on with a table, (u64 term, u32 length) of each entry, and then all payloads: the
index of the first entry is prev_index + 1. An Install goes on with its Config, its data and,
counted as the last eight bytes of that, its round: nodes of the first version know of none, send no
data, and do not look at it.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, named like one
from typing import Final, TypeAlias

from queues.raft.config import Config, ConfigError
from queues.raft.messages import (
    Append,
    AppendReply,
    Entry,
    Install,
    Message,
    NodeId,
    PreVote,
    PreVoteReply,
    Snapshot,
    TimeoutNow,
    Vote,
    VoteReply,
)

_PRE_VOTE, _PRE_VOTE_REPLY, _VOTE, _VOTE_REPLY, _APPEND, _APPEND_REPLY, _INSTALL, _TIMEOUT_NOW = (
    range(1, 9)
)

_PLAIN: Final = Struct(">B16sQ")  # TimeoutNow
_ANSWER: Final = Struct(">B16sQ?")  # PreVoteReply, VoteReply: granted
_ASK: Final = Struct(">B16sQQQ?")  # PreVote, Vote: last index, last term, transfer
_APPEND_HEAD: Final = Struct(">B16sQQQQQI")  # prev index and term, commit, read round, entries
_REPLY: Final = Struct(">B16sQ?QQQQQ")  # ok, index, commit, hint index and term, read round
_INSTALL_HEAD: Final = Struct(">B16sQQQII")  # index and term of the snapshot, lengths
_PLACE: Final = Struct(">QI")
_ROUND: Final = Struct(">Q")

Body: TypeAlias = bytes | memoryview


class CodecError(Exception):
    """Bytes that are no bundle of Raft messages."""


class Tails:
    """Encoded entries of the appends of one turn: followers that keep up share one encoding.

    For all bundles of a turn, then thrown away: it knows a list of entries by its identity.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Sequence[Entry], list[bytes]]] = {}

    def of(self, entries: Sequence[Entry]) -> list[bytes]:
        known = self._known.get(id(entries))
        if known is None:
            known = self._known[id(entries)] = (entries, _encode_entries(entries))
        return known[1]


def encode_bundle(items: Iterable[tuple[bytes, Message]], tails: Tails) -> list[bytes]:
    """Pieces to be sent one after the other; payloads are among them as they are.

    `items`: the uid of a group and a message of that group. The data of an Install must be bytes.
    """
    pieces: list[bytes] = []
    for uid, msg in items:
        if isinstance(msg, AppendReply):
            pieces.append(
                _REPLY.pack(
                    _APPEND_REPLY,
                    uid,
                    msg.term,
                    msg.ok,
                    msg.index,
                    msg.commit,
                    msg.hint_index,
                    msg.hint_term,
                    msg.read_round,
                )
            )
        elif isinstance(msg, Append):
            pieces.append(
                _APPEND_HEAD.pack(
                    _APPEND,
                    uid,
                    msg.term,
                    msg.prev_index,
                    msg.prev_term,
                    msg.commit,
                    msg.read_round,
                    len(msg.entries),
                )
            )
            if msg.entries:
                pieces += tails.of(msg.entries)
        else:
            _encode_rare(pieces, uid, msg)
    return pieces


def _encode_entries(entries: Sequence[Entry]) -> list[bytes]:
    pack = _PLACE.pack
    table = b"".join([pack(entry.term, len(entry.payload)) for entry in entries])
    return [table, *[entry.payload for entry in entries if entry.payload]]


def _encode_rare(
    pieces: list[bytes],
    uid: bytes,
    msg: PreVote | PreVoteReply | Vote | VoteReply | Install | TimeoutNow,
) -> None:
    if isinstance(msg, PreVote):
        ask = _ASK.pack(_PRE_VOTE, uid, msg.term, msg.last_index, msg.last_term, 0)
        pieces.append(ask)
    elif isinstance(msg, Vote):
        ask = _ASK.pack(_VOTE, uid, msg.term, msg.last_index, msg.last_term, msg.transfer)
        pieces.append(ask)
    elif isinstance(msg, PreVoteReply):
        pieces.append(_ANSWER.pack(_PRE_VOTE_REPLY, uid, msg.term, msg.granted))
    elif isinstance(msg, VoteReply):
        pieces.append(_ANSWER.pack(_VOTE_REPLY, uid, msg.term, msg.granted))
    elif isinstance(msg, Install):
        snapshot = msg.snapshot
        data, config = snapshot.data, snapshot.config.encode()
        assert isinstance(data, bytes), "a snapshot travels as bytes"
        sizes = (len(config), len(data) + _ROUND.size)
        head = _INSTALL_HEAD.pack(_INSTALL, uid, msg.term, snapshot.index, snapshot.term, *sizes)
        pieces += (head, config, data, _ROUND.pack(msg.read_round))
    else:
        pieces.append(_PLAIN.pack(_TIMEOUT_NOW, uid, msg.term))


def decode_bundle(body: Body, to: NodeId, frm: NodeId) -> list[tuple[bytes, Message]]:
    """The uid of a group and a message, as often as there are; all or nothing: CodecError."""
    found: list[tuple[bytes, Message]] = []
    place, end = 0, len(body)
    reply = _REPLY.unpack_from
    try:
        while place < end:
            kind = body[place]
            if kind == _APPEND_REPLY:
                _, uid, term, ok, index, commit, hint, hint_term, round_ = reply(body, place)
                place += _REPLY.size
                found.append(
                    (uid, AppendReply(to, frm, term, ok, index, commit, hint, hint_term, round_))
                )
            elif kind == _APPEND:
                place = _decode_append(found, body, place, to, frm)
            else:
                place = _decode_rare(found, body, place, to, frm)
    except (StructError, ConfigError) as error:
        raise CodecError(f"malformed message at byte {place}: {error}") from None
    return found


def _decode_append(
    found: list[tuple[bytes, Message]], body: Body, place: int, to: NodeId, frm: NodeId
) -> int:
    _, uid, term, prev, prev_term, commit, read_round, count = _APPEND_HEAD.unpack_from(body, place)
    table = place + _APPEND_HEAD.size
    place = table + count * _PLACE.size
    end = len(body)
    if place > end:
        raise CodecError("an append is cut short")
    entries: list[Entry] = []
    index, before = prev, prev_term
    for entry_term, length in _PLACE.iter_unpack(body[table:place]):
        index += 1
        if not before <= entry_term <= term:
            raise CodecError("terms fall along a log")
        before = entry_term
        start, place = place, place + length
        entries.append(Entry(index, entry_term, bytes(body[start:place])))
    if place > end:
        raise CodecError("an append is cut short")
    append = Append(to, frm, term, prev, prev_term, entries, commit, read_round)
    found.append((uid, append))
    return place


def _decode_rare(
    found: list[tuple[bytes, Message]], body: Body, place: int, to: NodeId, frm: NodeId
) -> int:
    kind = body[place]
    message: Message
    if kind in (_PRE_VOTE, _VOTE):
        _, uid, term, last_index, last_term, transfer = _ASK.unpack_from(body, place)
        place += _ASK.size
        if kind == _VOTE:
            message = Vote(to, frm, term, last_index, last_term, transfer)
        else:
            message = PreVote(to, frm, term, last_index, last_term)
    elif kind in (_PRE_VOTE_REPLY, _VOTE_REPLY):
        _, uid, term, granted = _ANSWER.unpack_from(body, place)
        place += _ANSWER.size
        reply = VoteReply if kind == _VOTE_REPLY else PreVoteReply
        message = reply(to, frm, term, granted)
    elif kind == _INSTALL:
        return _decode_install(found, body, place, to, frm)
    elif kind == _TIMEOUT_NOW:
        _, uid, term = _PLAIN.unpack_from(body, place)
        place += _PLAIN.size
        message = TimeoutNow(to, frm, term)
    else:
        raise CodecError(f"no such kind of message: {kind}")
    found.append((uid, message))
    return place


def _decode_install(
    found: list[tuple[bytes, Message]], body: Body, place: int, to: NodeId, frm: NodeId
) -> int:
    _, uid, term, index, snap_term, config_size, size = _INSTALL_HEAD.unpack_from(body, place)
    start: int = place + _INSTALL_HEAD.size + config_size
    end: int = start + size
    if end > len(body):
        raise CodecError("a snapshot is cut short")
    config = Config.decode(bytes(body[start - config_size : start]))
    data, read_round = bytes(body[start:end]), 0
    if size >= _ROUND.size:
        (read_round,) = _ROUND.unpack_from(data, size - _ROUND.size)
        data = data[: -_ROUND.size]
    snapshot = Snapshot(index, snap_term, config, data)
    found.append((uid, Install(to, frm, term, snapshot, read_round)))
    return end
