"""The first request of a stream session: who is there, and in which vhost."""

from typing import NamedTuple

from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.errors import ConnectionFailure
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import Operation, Refused, Request, Status
from broker.security.sasl import EXTERNAL, PLAIN, Origin, parse_plain
from broker.security.user import User
from broker.vhost import VHost


class Login(NamedTuple):
    user: User
    vhost: VHost
    client: str


async def log_in(request: Request, node: Node, origin: Origin, *, full: bool) -> Login | Refused:
    """By the rules of AMQP's handshake; `full`: the node has all the connections it may have."""
    if request.operation != Operation.AUTHENTICATE:
        return Refused(Status.NOT_AUTHENTICATED, "the first request must be AUTHENTICATE")
    try:
        message = wire.decode_body(wire.Authenticate, request.body)
        user = await _authenticate(message, node, origin)
    except (MalformedError, ValueError) as error:
        return Refused(Status.MALFORMED, str(error))
    if user is None:
        return Refused(Status.LOGIN_REFUSED, "login was refused; see the broker's log")
    vhost = node.vhosts.get(message.vhost)
    if vhost is None:
        return Refused(Status.VHOST_REFUSED, f"vhost {message.vhost} not found")
    if not user.may_enter(vhost.name):
        text = f"access to vhost '{vhost.name}' refused for user '{user.name}'"
        return Refused(Status.VHOST_REFUSED, text)
    if full:
        text = f"connection limit ({node.config.connections_max}) is reached"
        return Refused(Status.TOO_MANY_CONNECTIONS, text)
    try:
        node.headcount.check_connection(user, vhost)
    except ConnectionFailure as error:
        return Refused(Status.TOO_MANY_CONNECTIONS, error.text)
    return Login(user, vhost, message.client)


async def _authenticate(message: wire.Authenticate, node: Node, origin: Origin) -> User | None:
    mechanism = message.mechanism
    if mechanism in node.config.auth_mechanisms:
        if mechanism == EXTERNAL and origin.certified_name is not None:
            return await node.doorkeeper.admit(origin.certified_name, origin.host)
        if mechanism == PLAIN:
            _, name, password = parse_plain(message.response)
            return await node.doorkeeper.log_in(name, password, origin.host)
    raise MalformedError(f"unknown SASL mechanism {mechanism!r}")
