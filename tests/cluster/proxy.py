"""The network between nodes: TCP connections that can be cut, cut one way, slowed and broken.

Each node is told addresses of this network for its peers, one listener for each ordered pair, so
that the network knows between whom every connection is, whoever opened it. A cut holds bytes back,
as lost packets do: connections stay open, and what was held back arrives after the cut is healed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

READ_BYTES = 1 << 16
HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)


@dataclass
class _Way:
    """One direction between two nodes."""

    held: bool = False
    delay_s: float = 0.0


@dataclass
class _Connection:
    dialer: str
    target: str
    sockets: list[socket.socket] = field(default_factory=list)

    def break_off(self) -> None:
        """Both ends see a reset."""
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Network:
    """Ways between nodes, by their names."""

    def __init__(self, addresses: dict[str, tuple[str, int]]) -> None:
        """`addresses`: where each node listens for the others."""
        self._addresses = addresses
        self._changed = threading.Condition()
        self._closed = False
        pairs = [(a, b) for a in addresses for b in addresses if a != b]
        self._ways = {pair: _Way() for pair in pairs}
        self._connections: list[_Connection] = []
        self._listeners = {pair: socket.create_server((HOST, 0)) for pair in pairs}
        for pair, listener in self._listeners.items():
            threading.Thread(target=self._accept, args=(pair, listener), daemon=True).start()

    def address(self, dialer: str, target: str) -> str:
        """Where `dialer` is told that `target` is."""
        return f"{HOST}:{self._listeners[dialer, target].getsockname()[1]}"

    # -- faults

    def cut(self, one: str, other: str) -> None:
        self._hold([(one, other), (other, one)])

    def cut_one_way(self, sender: str, receiver: str) -> None:
        """Nothing that `sender` sends reaches `receiver`; the other direction works."""
        self._hold([(sender, receiver)])

    def isolate(self, node: str) -> None:
        self._hold([pair for pair in self._ways if node in pair])

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Each piece of data takes so long, in both directions."""
        with self._changed:
            for pair in ((one, other), (other, one)):
                self._ways[pair].delay_s = seconds

    def break_connections(self, one: str, other: str) -> None:
        """Reset what is open between two nodes."""
        with self._changed:
            broken = [
                each for each in self._connections if {each.dialer, each.target} == {one, other}
            ]
            self._connections = [each for each in self._connections if each not in broken]
        for connection in broken:
            connection.break_off()

    def heal(self) -> None:
        """All is as it was."""
        with self._changed:
            for way in self._ways.values():
                way.held, way.delay_s = False, 0.0
            self._changed.notify_all()

    def _hold(self, pairs: list[tuple[str, str]]) -> None:
        with self._changed:
            for pair in pairs:
                self._ways[pair].held = True

    # -- traffic

    def close(self) -> None:
        with self._changed:
            self._closed = True
            connections, self._connections = self._connections, []
            self._changed.notify_all()
        for listener in self._listeners.values():
            with contextlib.suppress(OSError):  # wakes the thread that accepts
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in connections:
            connection.break_off()

    def _accept(self, pair: tuple[str, str], listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(pair, near), daemon=True).start()

    def _connect(self, pair: tuple[str, str], near: socket.socket) -> None:
        dialer, target = pair
        # A SYN and its answer need both directions.
        if not (self._passes(pair) and self._passes((target, dialer))):
            near.close()
            return
        try:
            far = socket.create_connection(self._addresses[target], timeout=5.0)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        connection = _Connection(dialer, target, [near, far])
        for sock in connection.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            if self._closed:
                connection.break_off()
                return
            self._connections.append(connection)
        for way, source, sink in ((pair, near, far), ((target, dialer), far, near)):
            threading.Thread(
                target=self._pump, args=(connection, way, source, sink), daemon=True
            ).start()

    def _pump(
        self,
        connection: _Connection,
        way: tuple[str, str],
        source: socket.socket,
        sink: socket.socket,
    ) -> None:
        try:
            while data := source.recv(READ_BYTES):
                if not self._passes(way):
                    return
                if delay_s := self._ways[way].delay_s:
                    time.sleep(delay_s)
                sink.sendall(data)
            # The end of a stream is news like any other, and does not pass a cut either.
            if self._passes(way):
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One end is gone with a reset, and so is the other: but only over a way that works.
            if self._passes(way):
                connection.break_off()
        finally:
            with self._changed:
                connection.sockets = [sock for sock in connection.sockets if sock.fileno() >= 0]

    def _passes(self, way: tuple[str, str]) -> bool:
        """Wait until nothing holds this direction; False if the network is closed instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._ways[way].held)
            return not self._closed
