"""The first words on a connection between nodes: each proves that it knows the cluster's secret.

    message := length u16 of the rest | type u8 | payload

    dialer                                        acceptor
    HELLO     magic, version, lane, link, to, claim  →
              ←  CHALLENGE  claim
    PROOF     HMAC(secret, "dialer" + HELLO + CHALLENGE)  →
              ←  WELCOME  HMAC(secret, "acceptor" + HELLO + CHALLENGE)
    GO  →

    claim := number u64 | uuid 16 | cluster 16 | boot u64 | run 16 | nonce 32 | name

Either may say REFUSED and why, instead. What a claim says is looked at only once it is proven, and
nothing of the connection's use begins before GO. The secret itself is never sent. Without TLS this
keeps strangers out; it does not protect what follows from someone who sits on the wire.
"""

import hmac
import os
import struct
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import trio

from broker.cluster.identity import Start
from broker.cluster.table import NAME_CHARS_MAX, NUMBER_MAX, UUID_BYTES
from queues.raft.messages import NodeId

VERSION: Final = 1  # of all that nodes say to each other
# Besides the two lanes of a link: a fresh node asks how far the others are.
FORMING_LANE: Final = 2
MESSAGE_BYTES_MAX: Final = 2048  # from strangers; names have up to 1020 bytes
REASON_CHARS_MAX: Final = 400
NO_CLUSTER: Final = bytes(UUID_BYTES)

_MAGIC: Final = b"LVRTPEER"
_MESSAGE: Final = struct.Struct(">HB")
_OPENING: Final = struct.Struct(">8sHB16sQ")
_CLAIM: Final = struct.Struct(">Q16s16sQ16s32s")
_NONCE_BYTES: Final = 32

_HELLO, _CHALLENGE, _PROOF, _WELCOME, _GO, _REFUSED = range(1, 7)


class HelloFailedError(Exception):
    """The other end said nothing that makes sense, or nothing at all."""


class RefusedError(Exception):
    """This node will not have the other."""


class RefusedByPeerError(Exception):
    """The other node will not have this one."""


class Claim(NamedTuple):
    """Who a node says that it is."""

    number: NodeId  # 0 if it is fresh
    uuid: bytes
    cluster: bytes  # NO_CLUSTER if it is fresh
    start: Start
    name: str


class Opening(NamedTuple):
    """What a dialer wants, and who it is."""

    lane: int
    link: bytes  # random; the same for both lanes of one link
    to: NodeId  # 0 for whoever is there
    claim: Claim


async def dial(
    stream: trio.abc.Stream,
    secret: bytes,
    opening: Opening,
    approve: Callable[[Claim], Awaitable[None]],
) -> Claim:
    """Be let in. `approve` raises RefusedError for a node that is not the one to be reached."""
    nonce = os.urandom(_NONCE_BYTES)
    hello = (
        _OPENING.pack(_MAGIC, VERSION, opening.lane, opening.link, opening.to)
        + _pack_claim(opening.claim, nonce)
    )  # fmt: skip
    await _send(stream, _HELLO, hello)
    challenge = await _receive(stream, _CHALLENGE)
    claim = _unpack_claim(challenge)
    await _send(stream, _PROOF, _mac(secret, b"dialer", hello, challenge))
    welcome = await _receive(stream, _WELCOME)
    try:
        if not hmac.compare_digest(welcome, _mac(secret, b"acceptor", hello, challenge)):
            raise RefusedError("its cluster secret is not this node's")
        await approve(claim)
    except RefusedError as error:
        await _refuse(stream, error)
        raise
    await _send(stream, _GO, b"")
    return claim


async def accept(
    stream: trio.abc.Stream,
    secret: bytes,
    claim: Claim,
    admit: Callable[[Opening], Awaitable[None]],
) -> Opening:
    """Let a dialer in. `admit` raises RefusedError for one that is proven but unwelcome."""
    hello = await _receive(stream, _HELLO)
    try:
        opening = _unpack_opening(hello)
        challenge = _pack_claim(claim, os.urandom(_NONCE_BYTES))
        await _send(stream, _CHALLENGE, challenge)
        proof = await _receive(stream, _PROOF)
        if not hmac.compare_digest(proof, _mac(secret, b"dialer", hello, challenge)):
            raise RefusedError("its cluster secret is not this node's")
        await admit(opening)
    except RefusedError as error:
        await _refuse(stream, error)
        raise
    await _send(stream, _WELCOME, _mac(secret, b"acceptor", hello, challenge))
    await _receive(stream, _GO)
    return opening


def _mac(secret: bytes, role: bytes, hello: bytes, challenge: bytes) -> bytes:
    """Over all that both have said; lengths in front, so that nothing can be shifted."""
    lengths = struct.pack(">BHH", len(role), len(hello), len(challenge))
    return hmac.digest(secret, lengths + role + hello + challenge, "sha256")


def _pack_claim(claim: Claim, nonce: bytes) -> bytes:
    number, uuid, cluster, (boot, run), name = claim
    return _CLAIM.pack(number, uuid, cluster, boot, run, nonce) + name.encode()


def _unpack_claim(data: bytes) -> Claim:
    try:
        number, uuid, cluster, boot, run, _ = _CLAIM.unpack_from(data)
        name = data[_CLAIM.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise HelloFailedError("what it says of itself cannot be read") from error
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise HelloFailedError("its name is empty or too long")
    if max(number, boot) >= NUMBER_MAX:
        raise HelloFailedError("its numbers cannot be")
    return Claim(number, uuid, cluster, Start(boot, run), name)


def _unpack_opening(data: bytes) -> Opening:
    if len(data) < _OPENING.size or not data.startswith(_MAGIC):
        raise HelloFailedError("it is no node of a cluster")
    _, version, lane, link, to = _OPENING.unpack_from(data)
    if version != VERSION:
        raise RefusedError(f"it speaks version {version} between nodes, this node {VERSION}")
    return Opening(lane, link, to, _unpack_claim(data[_OPENING.size :]))


async def _refuse(stream: trio.abc.Stream, error: RefusedError) -> None:
    reason = str(error)[:REASON_CHARS_MAX].encode(errors="replace")
    await _send(stream, _REFUSED, reason)


async def _send(stream: trio.abc.Stream, type_: int, payload: bytes) -> None:
    try:
        await stream.send_all(_MESSAGE.pack(len(payload) + 1, type_) + payload)
    except trio.BrokenResourceError as error:
        # It may have refused and gone: what it said then is still to be read.
        if type_ == _REFUSED:
            return
        if type_ != _PROOF:
            raise HelloFailedError(_broken(error)) from error


async def _receive(stream: trio.abc.Stream, wanted: int) -> bytes:
    length, type_ = _MESSAGE.unpack(await receive_exactly(stream, _MESSAGE.size))
    if not 0 < length <= MESSAGE_BYTES_MAX:
        raise HelloFailedError("it is no node of a cluster")
    payload = await receive_exactly(stream, length - 1)
    if type_ == _REFUSED:
        reason = payload[: 4 * REASON_CHARS_MAX].decode(errors="replace")
        raise RefusedByPeerError(reason[:REASON_CHARS_MAX])
    if type_ != wanted:
        raise HelloFailedError(f"it said {type_} where {wanted} was expected")
    return payload


async def receive_exactly(stream: trio.abc.Stream, count: int) -> bytes:
    """Not a byte more: what follows is for someone else to read."""
    data = b""
    while len(data) < count:
        try:
            received = await stream.receive_some(count - len(data))
        except trio.BrokenResourceError as error:
            raise HelloFailedError(_broken(error)) from error
        if not received:
            raise HelloFailedError("it closed the connection")
        data += received
    return data


def _broken(error: trio.BrokenResourceError) -> str:
    """TLS says why, below."""
    cause = error.__cause__
    return f"the connection broke: {cause}" if cause is not None else "the connection broke"
