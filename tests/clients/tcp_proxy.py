"""A TCP proxy on loopback whose open connections can be cut, as a failing network would."""

from __future__ import annotations

import contextlib
import socket
import threading


class CuttableProxy:
    """Forwards every connection to one address at a time until told to cut them all."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def lead_to(self, target: tuple[str, int]) -> None:
        """Forward connections to another address from now on."""
        self._target = target

    def cut(self) -> int:
        """Break all connections that are open now; returns how many there were."""
        broken, self._sockets = self._sockets, []
        for sock in broken:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return len(broken) // 2

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # nobody there: as if nobody were here either
                    near.close()
                    continue
                self._sockets += [near, far]
                self._start(self._forward, near, far)
                self._start(self._forward, far, near)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()
