"""The server: listeners, the accept loop, readiness, and shutdown in one order."""

import contextlib
import gc
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from broker import logs
from broker.cluster.cluster import Cluster, refuse_lone
from broker.cluster.operations import Operations
from broker.config import Config
from broker.connection.connection import Connection
from broker.connection.tls_transport import TlsFailed, TlsTransport
from broker.connection.transport import SocketTransport, Transport
from broker.console.assets import add_console
from broker.doors import Doors, Handler
from broker.durability import Durability
from broker.http.access_keys import add_access_keys
from broker.http.admin import Admin
from broker.http.auth import log_in
from broker.http.cluster import add_cluster
from broker.http.dead_letters import add_dead_letters
from broker.http.health import add_health
from broker.http.login import add_login
from broker.http.permissions import add_permissions
from broker.http.policies import add_policies
from broker.http.router import Router
from broker.http.scheduled import add_scheduled
from broker.http.server import HttpDoor, HttpLimits
from broker.http.stream_groups import add_stream_groups
from broker.http.streams import add_streams
from broker.http.users import add_users
from broker.http.vhosts import add_vhosts
from broker.internal_errors import CONNECTION, STREAM_SESSION
from broker.management.routes import add_management
from broker.management.site import Addresses
from broker.memory_watch import MemoryWatch
from broker.node import Node
from broker.registry.door import SchemaRegistry
from broker.security.sasl import Origin
from broker.security.tls import Certificates, certified_name
from broker.sqs.door import Sqs
from broker.sqs.short_form import add_short_form
from broker.startup import prepare_data_dir
from broker.storage import Storage
from broker.strangers import Files, Stranger, Strangers
from broker.streams.group_host import GroupHost
from broker.streams.service import StreamService
from broker.streams.session import StreamSession
from broker.streams.streams_service import StreamsService
from broker.streams.transaction_host import TransactionHost
from broker.topics.door import Topics
from broker.version import VERSION
from flow_control.memory import Process
from flow_control.outbox import Outbox

# Connections beyond the limit that may still shake hands, to be told so; others are closed at once.
REFUSALS_MAX: Final = 64
# Strangers may have one HTTP connection for so many of those who have logged in.
HTTP_STRANGERS_SHARE: Final = 2

_log = logs.get("server")


class Server:
    """The AMQP door of a node."""

    def __init__(self, node: Node, files: Files, streams: StreamService | None = None) -> None:
        self.node = node
        self.files = files
        config = node.config
        self.strangers = Strangers(
            most=config.connections_max + REFUSALS_MAX,
            of_one_address=config.strangers_per_address_max,
            files=files,
        )
        self.streams = streams
        self.connections: set[Connection | StreamSession] = set()
        self._left = trio.Event()  # set, and made anew, whenever a connection ends
        self._inside: set[trio.CancelScope] = set()  # one for each socket that was not dropped

    async def handle(
        self, stream: trio.SocketStream, certificates: Certificates | None = None
    ) -> None:
        """Serve one accepted socket; under TLS if there are certificates."""
        try:
            address = stream.socket.getpeername()
            local = stream.socket.getsockname()
        except OSError:  # gone before it was looked at
            await trio.aclose_forcefully(stream)
            return
        limit = self.node.config.connections_max
        if len(self._inside) >= limit:
            self.strangers.drop_one()
        scope = trio.CancelScope()
        stranger = None
        if len(self._inside) < limit + REFUSALS_MAX and not self.node.stopping:
            drop = partial(self._drop, scope)
            stranger = self.strangers.enter(address[0], stream.socket.fileno(), drop)
        if stranger is None:
            await trio.aclose_forcefully(stream)
            return
        full = len(self._inside) >= limit
        self._inside.add(scope)
        origin = Origin(
            address[0],
            address[1],
            local=f"{local[0]}:{local[1]}",
            encrypted=certificates is not None,
        )
        try:
            with scope:
                await self._admit(stream, origin, certificates, stranger, full=full)
        finally:
            self._inside.discard(scope)
            stream.socket.close()  # where it had to go amid TLS's handshake
            stranger.end()

    def _drop(self, scope: trio.CancelScope) -> None:
        self._inside.discard(scope)
        scope.cancel()

    async def _admit(
        self,
        stream: trio.SocketStream,
        origin: Origin,
        certificates: Certificates | None,
        stranger: Stranger,
        *,
        full: bool,
    ) -> None:
        if certificates is None:
            await self._serve(SocketTransport(stream, Outbox()), origin, stranger, full=full)
            return
        transport = TlsTransport(stream, Outbox(), certificates.amqp)
        if await self._begin_tls(transport, origin):
            name = certified_name(transport.peer_certificate(), self.node.config.tls_login_from)
            origin = origin._replace(certified_name=name)
            await self._serve(transport, origin, stranger, full=full)

    async def _begin_tls(self, transport: TlsTransport, origin: Origin) -> bool:
        """Whether the client came through TLS's own handshake."""
        try:
            with trio.move_on_after(self.node.config.handshake_timeout_s):
                await transport.shake_hands()
                return True
            reason = "it took too long"
        except TlsFailed as failure:
            reason = str(failure)
        _log.warning("tls_failed", peer=origin.name, reason=reason)
        return False

    async def _serve(
        self, transport: Transport, origin: Origin, stranger: Stranger, *, full: bool
    ) -> None:
        connection = Connection(transport, self.node, origin)
        connection.stranger = stranger
        await self._run(connection, partial(connection.run, full=full))
        received = connection.handed_over
        if received is None:
            return
        if self.streams is None or self.node.stopping:
            _log.warning("handshake_failed", peer=origin.name, reason="no streams are served")
            await transport.aclose()
            return
        session = StreamSession(transport, self.node, self.streams, origin)
        session.stranger = stranger
        await self._run(session, partial(session.run, received, full=full))

    async def _run(
        self, connection: Connection | StreamSession, run: Callable[[], Awaitable[None]]
    ) -> None:
        """As one of the node's connections."""
        self.connections.add(connection)
        self.node.churn.connection_created += 1
        self.node.connections.add(connection)
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - a bug in one connection must not end the node
            where = CONNECTION if isinstance(connection, Connection) else STREAM_SESSION
            self.node.errors.note(where, error, peer=connection.name)
        finally:
            self.connections.discard(connection)
            self.node.churn.connection_closed += 1
            self.node.connections.discard(connection)
            self._left.set()
            self._left = trio.Event()

    async def shut_down(self) -> None:
        """Tell every client, then wait for them to go, as long as the grace lasts."""
        self.node.stopping = True
        for connection in list(self.connections):
            await connection.shut_down()
        with trio.move_on_after(self.node.config.shutdown_grace_s):
            while self.connections:
                await self._left.wait()


async def serve(
    config: Config,
    *,
    announce: Callable[[str], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a node until SIGTERM or SIGINT. `announce` gets the ready line."""
    prepare_data_dir(config.data_dir)
    doors = await Doors.open(config)
    node = Node(config)
    _raise_file_limit()
    _let_the_writer_in()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        start = partial(_start_member if config.clustered else _start_alone, node, doors)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.timers.run, node.flush)
            started = await _unless_stopped(signals, partial(start, nursery))
            if started is None:
                nursery.cancel_scope.cancel()
                return
            _spare_the_collector()
            server = Server(node, Files(config.files_reserved), started.streams)
            router = await _routes(node, started, _addresses(config, doors), nursery)
            nursery.start_soon(MemoryWatch(node, Process(), started.storage.page_out).run)
            async with trio.open_nursery() as serving:
                serving.start_soon(_let_in, doors, server, router, nursery)
                announce(_ready_line(config, doors))
                task_status.started()
                await _stop_signal(signals, doors.reload)
                serving.cancel_scope.cancel()
            await server.shut_down()
            await started.storage.close()
            nursery.cancel_scope.cancel()
    _log.info("stopped")


@dataclass(frozen=True, slots=True)
class Started:
    """What a node has once it may be asked for something."""

    storage: Storage
    streams: StreamService | None
    cluster: Cluster | None = None


async def _let_in(
    doors: Doors, server: Server, router: Router, handler_nursery: trio.Nursery
) -> None:
    certificates = doors.certificates
    http = _http_door(server, router).handle
    https: Handler = http
    if certificates is not None:
        https = partial(http, context=lambda: certificates.http)
    amqps = partial(server.handle, certificates=certificates)
    errors = server.node.errors
    await doors.serve(server.handle, amqps, http, https, handler_nursery, errors)


def _http_door(server: Server, router: Router) -> HttpDoor:
    node, config = server.node, server.node.config
    limits = HttpLimits(
        connections_max=config.http_connections_max, login_s=config.handshake_timeout_s
    )
    most = max(config.http_connections_max // HTTP_STRANGERS_SHARE, 1)
    of_one_address = min(config.strangers_per_address_max, max(most // 2, 1))
    return HttpDoor(
        router,
        limits,
        strangers=Strangers(most=most, of_one_address=of_one_address, files=server.files),
        log_in=lambda request: log_in(request, node),
        errors=node.errors,
    )


async def _stop_signal(signals: AsyncIterator[int], reload: Callable[[], None]) -> None:
    """Wait for one that ends the node."""
    async for number in signals:
        if number == signal.SIGHUP:
            reload()
        else:
            _log.info("stopping", signal=signal.Signals(number).name)
            return


async def _start_alone(node: Node, _doors: Doors, nursery: trio.Nursery) -> Started:
    refuse_lone(node.config)
    durability = Durability(node)
    durability.open()
    groups = GroupHost(node)
    transactions = TransactionHost(node, groups, durability.host, lost_logs=durability.lost_logs)
    node.keepers += [groups, transactions]
    streams = StreamsService(node.vhosts, durability.producers, groups, transactions)
    await nursery.start(durability.run)
    groups.start()
    transactions.start()
    return Started(durability, streams)


async def _start_member(node: Node, doors: Doors, nursery: trio.Nursery) -> Started:
    cluster = Cluster(node)
    await nursery.start(cluster.peers.run)
    storage = await cluster.join()
    await nursery.start(storage.run)
    await nursery.start(cluster.errands.run)
    client = node.config.client_address(doors.amqp_port)
    await cluster.start(str(client), f"{client.host}:{doors.http_port}")
    return Started(storage, storage.shared_streams.service, cluster)


async def _unless_stopped(
    signals: AsyncIterator[int], start: Callable[[], Awaitable[Started]]
) -> Started | None:
    """Start, which may take as long as others do; None if a signal comes first."""
    result: list[Started] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            result.append(await start())
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        await _stop_signal(signals, lambda: None)
        nursery.cancel_scope.cancel()
    return result[0] if result else None


async def _routes(
    node: Node, started: Started, addresses: Addresses, nursery: trio.Nursery
) -> Router:
    """With what has to run beside them in the nursery."""
    router = Router()
    add_health(router, lambda: _status(node))
    cluster = started.cluster
    admin = Admin(node, router, cluster.errands if cluster is not None else None)
    add_login(router, node)
    add_console(router)
    for add_routes in (add_users, add_access_keys, add_vhosts, add_permissions):
        add_routes(admin)
    for add_routes in (add_policies, add_dead_letters, add_scheduled):
        add_routes(admin)
    if started.streams is not None:
        add_streams(admin, started.streams)
        add_stream_groups(admin, started.streams)
        await _add_topics(router, node, started.streams, cluster, nursery)
    nursery.start_soon(add_management(admin, router, node, cluster, addresses).run)
    add_cluster(admin, Operations(cluster) if cluster is not None else None)
    sqs = Sqs(node, cluster.errands if cluster is not None else None)
    sqs.add_routes(router)
    add_short_form(admin, router, sqs)
    SchemaRegistry(node).add_routes(router)
    await nursery.start(sqs.tasks.run)
    if cluster is not None:
        cluster.errands.serve = router.dispatch
    return router


async def _add_topics(
    router: Router,
    node: Node,
    streams: StreamService,
    cluster: Cluster | None,
    nursery: trio.Nursery,
) -> None:
    if cluster is None:
        topics = Topics(node, streams, None, me=0)
    else:
        topics = Topics(node, streams, cluster.errands, me=cluster.peers.me)
    topics.add_routes(router)
    await nursery.start(topics.sessions.run)


def _raise_file_limit() -> None:
    """Each connection is a file; the usual soft limit of 1,024 is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _addresses(config: Config, doors: Doors) -> Addresses:
    found = doors.addresses()
    if config.clustered:
        found["clustering"] = (config.peer_address.host, config.peer_address.port)
    return found


def _ready_line(config: Config, doors: Doors) -> str:
    shown = doors.described()
    first = {"amqp": shown.pop("amqp"), "http": shown.pop("http")}
    told = {**first, "node": config.node_name, "data": config.data_dir}
    if config.clustered:
        told["peers"] = config.peer_address
    return " ".join(["leveret ready", *(f"{key}={at}" for key, at in {**told, **shown}.items())])


def _status(node: Node) -> dict[str, object]:
    return {
        "status": "stopping" if node.stopping else "ok",
        "node": node.config.node_name,
        "version": VERSION,
    }


def _spare_the_collector() -> None:
    """Messages form no cycles, so that collecting often only walks the backlog again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _let_the_writer_in() -> None:
    """A thread that comes back from fsync waits this long for a busy loop, instead of 5 ms."""
    sys.setswitchinterval(0.0005)
