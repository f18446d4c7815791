"""The ports of a node: opened at the start, with TLS where there is a certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker import logs
from broker.internal_errors import ACCEPT, WATCH, InternalErrors
from broker.security.tls import Certificates
from broker.startup import open_listeners

if TYPE_CHECKING:
    from broker.config import Config

Handler = Callable[[trio.SocketStream], Awaitable[None]]

CLOSED = "off"  # in the ready line, where a port would be
AGAIN_S = 0.1  # after an error of the listening socket itself: a look at it costs little

_log = logs.get("server")


@dataclass(slots=True)
class Doors:
    """Listeners by protocol; none where that is not spoken."""

    amqp: list[trio.SocketListener] = field(default_factory=list)
    http: list[trio.SocketListener] = field(default_factory=list)
    amqps: list[trio.SocketListener] = field(default_factory=list)
    https: list[trio.SocketListener] = field(default_factory=list)
    certificates: Certificates | None = None

    @classmethod
    async def open(cls, config: Config) -> Doors:
        """Raises StartupError."""
        doors = cls()
        listen = partial(open_listeners, config.host)
        if config.plain_ports == "on":
            doors.amqp = await listen(config.amqp_port, purpose="AMQP")
            doors.http = await listen(config.http_port, purpose="HTTP")
        if config.tls_certificate is not None:
            doors.certificates = Certificates(config)
            doors.amqps = await listen(config.amqps_port, purpose="AMQP over TLS")
            doors.https = await listen(config.https_port, purpose="HTTP over TLS")
        return doors

    @property
    def amqp_port(self) -> int:
        """By which clients are told to come: without TLS, if that is possible."""
        return _port(self.amqp or self.amqps)

    @property
    def http_port(self) -> int:
        return _port(self.http or self.https)

    def reload(self) -> None:
        """Read what can be read anew while the node runs: certificates."""
        if self.certificates is None:
            _log.info("nothing_to_reload", reason="there is no tls_certificate")
        else:
            self.certificates.reload()

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each protocol is spoken that is."""
        spoken = {"amqp": self.amqp, "amqp/ssl": self.amqps, "http": self.http, "https": self.https}
        return {
            protocol: listeners[0].socket.getsockname()[:2]
            for protocol, listeners in spoken.items()
            if listeners
        }

    def described(self) -> dict[str, str]:
        """Addresses for the ready line, by protocol."""
        shown = {"amqp": _address(self.amqp), "http": _address(self.http)}
        if self.certificates is not None:
            shown |= {"amqps": _address(self.amqps), "https": _address(self.https)}
        return shown

    async def serve(
        self,
        amqp: Handler,
        amqps: Handler,
        http: Handler,
        https: Handler,
        handler_nursery: trio.Nursery,
        errors: InternalErrors,
    ) -> None:
        """Let clients in until this is cancelled; what serves them goes on in the nursery."""
        async with trio.open_nursery() as nursery:
            for listeners, handler in (
                (self.amqp, amqp),
                (self.amqps, amqps),
                (self.http, http),
                (self.https, https),
            ):
                for listener in listeners:
                    guarded = partial(_handle, handler, errors)
                    nursery.start_soon(_accept, listener, guarded, handler_nursery, errors)
            if self.certificates is not None:
                nursery.start_soon(_watch, self.certificates, errors)


async def _accept(
    listener: trio.SocketListener,
    handler: Handler,
    handler_nursery: trio.Nursery,
    errors: InternalErrors,
) -> None:
    """Go on whatever happens; Trio itself waits where there is no descriptor left."""
    while True:
        try:
            await trio.serve_listeners(handler, [listener], handler_nursery=handler_nursery)
        except Exception as error:  # noqa: BLE001 - the node must stay reachable
            errors.note(ACCEPT, error)
        await trio.sleep(AGAIN_S)


async def _handle(handler: Handler, errors: InternalErrors, stream: trio.SocketStream) -> None:
    """The last boundary of a client: what is wrong here has not been met by its own guards."""
    try:
        await handler(stream)
    except Exception as error:  # noqa: BLE001 - one client must not end the node
        errors.note(ACCEPT, error)
        await trio.aclose_forcefully(stream)


async def _watch(certificates: Certificates, errors: InternalErrors) -> None:
    while True:
        with errors.guard(WATCH, what="certificates"):
            await certificates.watch()


def _port(listeners: list[trio.SocketListener]) -> int:
    port = listeners[0].socket.getsockname()[1]
    assert isinstance(port, int)
    return port


def _address(listeners: list[trio.SocketListener]) -> str:
    if not listeners:
        return CLOSED
    host, port, *_ = listeners[0].socket.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
