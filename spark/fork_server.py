"""Starts Spark's Python processes by forking one that has imported what they need.

    python -m spark.fork_server DIRECTORY DESCRIPTOR

Before the first micro-batch of a pipeline Spark starts some twenty Python processes, one after the
other: to find sources, to plan, one for each source, daemons, workers. What Spark takes for Python
(PYSPARK_PYTHON) is fork_client.py, which hands its arguments, environment, directory and standard
streams to this server, and stays until the process that is forked for it ends.

    client → server   length (4 bytes), with descriptors 0, 1 and 2; JSON: argv, environ, cwd
    server → client   a byte when the process is there, and at its end its exit code (1 byte)

A client that is killed takes its process along. The server ends when the driver does (its standard
input is the driver's pipe), and takes the directory along. The socket that it listens on is made by
the driver: so nobody comes too early.
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
import traceback
from contextlib import suppress
from typing import Any, Final

from spark.preloading import preload

LENGTH: Final = struct.Struct("!I")
REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024  # an environment; Linux allows less
REQUEST_S: Final = 10.0  # for a client to say what it wants


class ForkServer:
    def __init__(self, listener: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}  # by process
        self._watches: dict[int, int] = {}

    def serve(self) -> None:
        """Until standard input ends."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if not os.read(0, 1):
                        return
                else:
                    action, *arguments = key.data if isinstance(key.data, tuple) else (key.data,)
                    action(*arguments)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.settimeout(REQUEST_S)
        try:
            request, streams = receive(client)
        except (OSError, ValueError, EOFError):
            client.close()
            return
        process = os.fork()
        if process == 0:
            self._become(request, streams)
        for each in streams:
            os.close(each)
        with suppress(OSError):
            client.sendall(b"+")
        watch = os.pidfd_open(process)
        self._clients[process], self._watches[process] = client, watch
        self._selector.register(watch, selectors.EVENT_READ, (self._ended, process))
        self._selector.register(client, selectors.EVENT_READ, (self._left, process))

    def _left(self, process: int) -> None:
        """The client was killed: so is its process, which `_ended` hears of."""
        client = self._clients[process]
        with suppress(OSError):
            if client.recv(1):
                return
        self._selector.unregister(client)
        os.kill(process, signal.SIGTERM)

    def _ended(self, process: int) -> None:
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        client, watch = self._clients.pop(process), self._watches.pop(process)
        self._selector.unregister(watch)
        os.close(watch)
        with suppress(KeyError):
            self._selector.unregister(client)
        with suppress(OSError):
            client.sendall(bytes([code if code >= 0 else 128 - code]))
        client.close()

    def _become(self, request: dict[str, Any], streams: list[int]) -> None:
        """In the forked process: what was asked for, and then the end."""
        code = 1
        try:
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
    directory, descriptor = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    try:
        preload()
        ForkServer(socket.socket(fileno=int(descriptor))).serve()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
