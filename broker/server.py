"""The server: listeners, the accept loop, readiness, and shutdown in one order."""

import contextlib
import gc
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Final

import trio

from broker import logs
from broker.config import Config
from broker.connection.connection import Connection
from broker.connection.transport import SocketTransport
from broker.durability import Durability
from broker.http.health import add_health
from broker.http.router import Router
from broker.http.server import make_handler
from broker.node import Node
from broker.startup import open_listeners, prepare_data_dir
from broker.version import VERSION
from flow_control.memory import MemoryAlarm, Process, memory_bytes
from flow_control.outbox import Outbox

# Connections beyond the limit that may still shake hands, to be told so; others are closed at once.
REFUSALS_MAX: Final = 64
MEMORY_CHECK_S: Final = 0.25  # at a gigabit a second, 30 MB come between two looks

_log = logs.get("server")


class Server:
    """The AMQP door of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connections: set[Connection] = set()
        self._left = trio.Event()  # set, and made anew, whenever a connection ends

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one accepted socket."""
        count = len(self.connections)
        limit = self.node.config.connections_max
        if count >= limit + REFUSALS_MAX or self.node.stopping:
            await trio.aclose_forcefully(stream)
            return
        try:
            address = stream.socket.getpeername()
        except OSError:  # gone before it was looked at
            await trio.aclose_forcefully(stream)
            return
        connection = Connection(
            SocketTransport(stream, Outbox()),
            self.node,
            peer=f"{address[0]}:{address[1]}",
            peer_is_loopback=_is_loopback(address[0]),
        )
        self.connections.add(connection)
        self.node.connections.add(connection)
        try:
            await connection.run(full=count >= limit)
        except Exception as error:  # noqa: BLE001 - a bug in one connection must not end the node
            _log.exception("connection_failed", error, peer=connection.name)
        finally:
            self.connections.discard(connection)
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
    amqp = await open_listeners(config.host, config.amqp_port, purpose="AMQP")
    http = await open_listeners(config.host, config.http_port, purpose="HTTP")
    node = Node(config)
    durability = Durability(node)
    durability.open()
    server = Server(node)
    router = Router()
    add_health(router, lambda: _status(node))
    _raise_file_limit()
    _spare_the_collector()
    _let_the_writer_in()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.timers.run, node.flush)
            nursery.start_soon(_watch_memory, node)
            await nursery.start(durability.run)
            async with trio.open_nursery() as doors:
                serve_amqp = partial(trio.serve_listeners, server.handle, amqp)
                serve_http = partial(trio.serve_listeners, make_handler(router), http)
                doors.start_soon(partial(serve_amqp, handler_nursery=nursery))
                doors.start_soon(partial(serve_http, handler_nursery=nursery))
                announce(_ready_line(config, amqp[0], http[0]))
                task_status.started()
                async for number in signals:
                    _log.info("stopping", signal=signal.Signals(number).name)
                    break
                doors.cancel_scope.cancel()
            await server.shut_down()
            await durability.close()
            nursery.cancel_scope.cancel()
    _log.info("stopped")


async def _watch_memory(node: Node) -> None:
    """Raise the memory alarm when this process uses too much, and clear it when it does not."""
    limit = node.config.memory_limit
    alarm = MemoryAlarm(limit if isinstance(limit, int) else int(limit * memory_bytes()))
    process = Process()
    while True:
        if alarm.update(process.used_bytes()):
            if alarm.on:
                node.raise_alarm("memory", "low on memory")
            else:
                node.clear_alarm("memory")
        if alarm.on:
            process.give_back()
        await trio.sleep(MEMORY_CHECK_S)


def _is_loopback(host: str) -> bool:
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 peer of a dual-stack listener
    return (mapped or address).is_loopback


def _raise_file_limit() -> None:
    """Each connection is a file; the usual soft limit of 1,024 is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ready_line(config: Config, amqp: trio.SocketListener, http: trio.SocketListener) -> str:
    return (
        f"leveret ready amqp={_address(amqp)} http={_address(http)} "
        f"node={config.node_name} data={config.data_dir}"
    )


def _address(listener: trio.SocketListener) -> str:
    host, port, *_ = listener.socket.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
