"""Starts Spark's Python processes by forking one that has imported what they need.

    python -m spark.fork_server DIRECTORY DESCRIPTOR DRIVER

Before the first micro-batch of a pipeline Spark starts some twenty Python processes, one after the
other: to find sources, to plan, one for each source, daemons, workers. What Spark takes for Python
(PYSPARK_PYTHON) is fork_client.py, which hands its arguments, environment, directory and standard
streams to this server, and stays until the process that is forked for it ends.

    client → server   length (4 bytes), with descriptors 0, 1 and 2; JSON: argv, environ, cwd
    server → client   a byte when the process is there, and at its end its exit code (1 byte)

A client that is killed takes its process along. The server ends when the driver does (the process
of that number, or its pipe to the server's standard input), and takes the directory along; a server
that is killed takes its processes along. The socket that it listens on belongs to the driver, so
nobody comes too early, or while the driver starts another server (fork_keeper.py).
"""

import json
import os
import random
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Final

from spark.lifelines import tie_to_parent
from spark.preloading import preload

LENGTH: Final = struct.Struct("!I")
REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024  # an environment; Linux allows less
REQUEST_S: Final = 10.0  # for a client to say what it wants
PAUSE_S: Final = 0.05  # until the next try to take in a client


class ForkServer:
    def __init__(self, listener: socket.socket, driver: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._driver = driver
        self._clients: dict[int, socket.socket] = {}  # by process
        self._watches: dict[int, int] = {}

    def serve(self) -> None:
        """Until the driver is gone."""
        self._selector.register(self._listener, selectors.EVENT_READ, (self._accept,))
        self._selector.register(0, selectors.EVENT_READ, None)
        with suppress(ProcessLookupError):
            self._selector.register(os.pidfd_open(self._driver), selectors.EVENT_READ, None)
        while os.getppid() == self._driver:
            ready = [key.data for key, _ in self._selector.select()]
            if None in ready:  # nothing is ever written to standard input
                return
            for action, *arguments in ready:
                try:
                    action(*arguments)
                except Exception:  # noqa: BLE001 - it is one client's, and others go on
                    traceback.print_exc()
                    self._drop(*arguments)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # out of descriptors, maybe: the client waits
            time.sleep(PAUSE_S)
            return
        client.settimeout(REQUEST_S)
        try:
            request, streams = receive(client)
        except (OSError, ValueError, EOFError):
            client.close()
            return
        try:
            self._fork(client, request, streams)
        except OSError:  # no process or descriptor is left: the client does without
            traceback.print_exc()
            client.close()
        finally:
            for each in streams:
                os.close(each)

    def _fork(self, client: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
        """Raises OSError."""
        server = os.getpid()
        process = os.fork()
        if process == 0:
            self._become(server, request, streams)
        try:
            watch = os.pidfd_open(process)
        except OSError:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise
        with suppress(OSError):
            client.sendall(b"+")
        self._clients[process], self._watches[process] = client, watch
        self._selector.register(watch, selectors.EVENT_READ, (self._ended, process))
        self._selector.register(client, selectors.EVENT_READ, (self._left, process))

    def _left(self, process: int) -> None:
        """The client was killed: so is its process, which `_ended` hears of."""
        client = self._clients.get(process)
        if client is None:  # the process has ended in this same round
            return
        with suppress(OSError):
            if client.recv(1):
                return
        self._selector.unregister(client)
        os.kill(process, signal.SIGTERM)

    def _ended(self, process: int) -> None:
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):
            self._clients[process].sendall(bytes([code if code >= 0 else 128 - code]))
        self._drop(process)

    def _drop(self, process: int | None = None) -> None:
        """Nothing more is heard of this process, nor of its client."""
        if process is None:
            return
        client, watch = self._clients.pop(process, None), self._watches.pop(process, None)
        if watch is not None:
            with suppress(KeyError):
                self._selector.unregister(watch)
            os.close(watch)
        if client is not None:
            with suppress(KeyError):
                self._selector.unregister(client)
            client.close()

    def _become(self, server: int, request: dict[str, Any], streams: list[int]) -> None:
        """In the forked process: what was asked for, and then the end."""
        code = 1
        try:
            tie_to_parent(server)
            self._forget()
            take_over(request, streams)
            code = run_module(request["argv"])
        except BaseException:  # noqa: BLE001 - nothing of it may get back into the server
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _forget(self) -> None:
        self._selector.close()
        self._listener.close()
        for client in self._clients.values():
            client.close()
        for watch in self._watches.values():
            os.close(watch)


def receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Raises OSError, ValueError, EOFError."""
    head, streams, _, _ = socket.recv_fds(client, LENGTH.size, 3)
    try:
        if len(head) < LENGTH.size or len(streams) != 3:
            raise EOFError
        (length,) = LENGTH.unpack(head)
        if length > REQUEST_BYTES_MAX:
            raise ValueError(length)
        body = bytearray()
        while len(body) < length:
            some = client.recv(length - len(body))
            if not some:
                raise EOFError
            body += some
        return json.loads(body), streams
    except BaseException:
        for each in streams:
            os.close(each)
        raise


def take_over(request: dict[str, Any], streams: list[int]) -> None:
    """The client's streams, environment and directory are this process's."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["cwd"], *(each for each in given if each and each not in sys.path)]
    random.seed()


def run_module(argv: list[str]) -> int:
    """As `python -m`, by its exit code."""
    module, *_ = sys.argv = argv
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def main() -> None:
    directory, descriptor, driver = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    preload()
    ForkServer(socket.socket(fileno=int(descriptor)), int(driver)).serve()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
