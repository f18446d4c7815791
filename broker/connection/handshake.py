"""The handshake: protocol header, login, tuning, and the choice of a vhost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pamqp import commands

from broker.config import Config
from broker.protocol.constants import FRAME_MIN_BYTES, PROTOCOL_HEADER, PROTOCOL_HEADER_0_9
from broker.protocol.errors import ConnectionFailure
from broker.protocol.stream_wire import HEADER_MARK
from broker.security.limits import Headcount
from broker.security.login import Doorkeeper
from broker.security.sasl import AMQPLAIN, EXTERNAL, PLAIN, Origin, parse_amqplain, parse_plain
from broker.security.user import User
from broker.version import VERSION

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.protocol.tables import Table
    from broker.vhost import VHost

# Before tuning. Room for long tokens and client properties, little for a stranger to hold.
HANDSHAKE_FRAME_BYTES: Final = 8192

SPOKEN_HEADERS: Final = (PROTOCOL_HEADER, PROTOCOL_HEADER_0_9)

CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
# Clients choose by product and version how to speak: kombu takes qos for what it is here (and in
# RabbitMQ since 3.3) only from a broker of that name.
SERVER_PROPERTIES: Final[dict[str, object]] = {
    "capabilities": dict.fromkeys(CAPABILITIES, True),
    "cluster_name": "leveret",
    "information": "Leveret, an AMQP 0-9-1 broker",
    "platform": f"Leveret {VERSION}",
    "product": "RabbitMQ",
    "version": "3.13.7",
}

FrameT = TypeVar("FrameT", bound="Frame")


class HandshakeFailed(Exception):  # noqa: N818 - it ends the connection without a word to the peer
    """The socket is to be closed without a connection.close."""


class OtherProtocol(Exception):  # noqa: N818 - nobody made a mistake
    """The client wants to speak the stream protocol."""


class Peer(Protocol):
    """The client, as far as a handshake goes."""

    origin: Origin

    async def receive_header(self) -> bytes: ...
    async def expect(self, kind: type[FrameT]) -> FrameT: ...
    async def send(self, kind: "type[Frame]", **arguments: object) -> None: ...
    async def send_raw(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What was agreed on."""

    user: User
    vhost: "VHost"
    frame_max: int
    channel_max: int
    heartbeat_s: int
    capabilities: frozenset[str]
    client_name: str  # chosen by the client; empty if it chose none
    client_product: str
    client_properties: "Table"
    mechanism: str


class House(Protocol):
    """The node, as far as a handshake goes."""

    config: Config
    vhosts: "dict[str, VHost]"
    doorkeeper: Doorkeeper
    headcount: Headcount


async def shake_hands(peer: Peer, node: House, *, full: bool) -> Session:
    """Raises ConnectionFailure for what AMQP answers, HandshakeFailed for what it does not.

    OtherProtocol leaves the socket to whoever speaks that.
    `full` says that the node has as many connections as it may have.
    """
    config = node.config
    header = await peer.receive_header()
    if header.startswith(HEADER_MARK):
        raise OtherProtocol
    if header not in SPOKEN_HEADERS:
        await peer.send_raw(PROTOCOL_HEADER)
        raise HandshakeFailed("protocol header is not AMQP 0-9-1")
    await peer.send(
        commands.Connection.Start,
        version_major=0,
        version_minor=9,
        server_properties=SERVER_PROPERTIES,
        mechanisms=" ".join(_mechanisms(peer.origin, node)),
        locales="en_US",
    )
    start_ok = await peer.expect(commands.Connection.StartOk)
    client = start_ok.client_properties
    capabilities = _capabilities(client)
    user = await _log_in(start_ok, peer, node)
    if user is None:
        if "authentication_failure_close" not in capabilities:
            raise HandshakeFailed("login refused")
        raise ConnectionFailure(
            403,
            f"Login was refused using authentication mechanism {start_ok.mechanism}. "
            "For details see the broker logfile.",
        )
    await peer.send(
        commands.Connection.Tune,
        channel_max=config.channel_max,
        frame_max=config.frame_max_bytes,
        heartbeat=config.heartbeat_s,
    )
    tune_ok = await peer.expect(commands.Connection.TuneOk)
    _check_tuning(tune_ok, config)
    opening = await peer.expect(commands.Connection.Open)
    vhost = node.vhosts.get(opening.virtual_host)
    if vhost is None:
        raise _not_allowed(f"vhost {opening.virtual_host} not found")
    if not user.may_enter(vhost.name):
        raise _not_allowed(f"access to vhost '{vhost.name}' refused for user '{user.name}'")
    if full:
        raise _not_allowed(f"connection limit ({config.connections_max}) is reached")
    node.headcount.check_connection(user, vhost)
    return Session(
        user=user,
        vhost=vhost,
        frame_max=tune_ok.frame_max,
        channel_max=tune_ok.channel_max,
        heartbeat_s=tune_ok.heartbeat,
        capabilities=capabilities,
        client_name=_string(client.get("connection_name")),
        client_product=_string(client.get("product")),
        client_properties=client,
        mechanism=start_ok.mechanism,
    )


def _mechanisms(origin: Origin, node: House) -> list[str]:
    """Those that can lead anywhere: clients take the first that they know, and have one try."""
    certified = origin.certified_name
    named = certified is not None and node.doorkeeper.knows(certified)
    return [word for word in node.config.auth_mechanisms if named or word != EXTERNAL]


def _not_allowed(text: str) -> ConnectionFailure:
    return ConnectionFailure(530, text, method=commands.Connection.Open.index)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _capabilities(client_properties: "Table") -> frozenset[str]:
    announced = client_properties.get("capabilities")
    if not isinstance(announced, dict):
        return frozenset()
    return frozenset(name for name, value in announced.items() if value is True)


async def _log_in(start_ok: commands.Connection.StartOk, peer: Peer, node: House) -> User | None:
    origin, mechanism = peer.origin, start_ok.mechanism
    if mechanism not in node.config.auth_mechanisms:
        raise HandshakeFailed(f"unknown SASL mechanism {mechanism!r}")
    response = start_ok.response
    raw = response.encode() if isinstance(response, str) else response
    try:
        if mechanism == PLAIN:
            _, name, password = parse_plain(raw)
        elif mechanism == AMQPLAIN:
            name, password = parse_amqplain(raw)
        elif origin.certified_name is not None:
            return await node.doorkeeper.admit(origin.certified_name, origin.host)
        else:
            raise HandshakeFailed(f"{mechanism} without a certificate")
    except ValueError as error:
        raise HandshakeFailed(f"malformed {mechanism} response: {error}") from error
    return await node.doorkeeper.log_in(name, password, origin.host)


def _check_tuning(tune_ok: commands.Connection.TuneOk, config: Config) -> None:
    for name, chosen, offered in (
        ("frame_max", tune_ok.frame_max, config.frame_max_bytes),
        ("channel_max", tune_ok.channel_max, config.channel_max),
    ):
        if chosen == 0 or chosen > offered:
            text = (
                f"negotiated {name} = {chosen} is higher than the maximum allowed value ({offered})"
            )
            raise ConnectionFailure(530, text, method=tune_ok.index)
    if tune_ok.frame_max < FRAME_MIN_BYTES:
        text = (
            f"negotiated frame_max = {tune_ok.frame_max} is lower than the minimum allowed value "
            f"({FRAME_MIN_BYTES})"
        )
        raise ConnectionFailure(530, text, method=tune_ok.index)
