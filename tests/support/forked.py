"""Broker processes without the start of an interpreter: forks of one that has imported everything.

    python -m tests.support.forked DESCRIPTOR

Four fifths of what a node needs until it is ready are imports, and tests start hundreds of nodes.
One such server belongs to each process of pytest, and is started when the first node is.

    pytest → server   JSON: arguments and env, with descriptors for output and errors; or reap
    server → pytest   JSON: the process id, or the exit code as subprocess has it

Nobody else collects exit codes: until pytest asks for one, the process id stays taken. When pytest
ends, whatever it has left running is killed.
"""

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUEST_BYTES_MAX: Final = 512 * 1024  # an environment and a command line


class Forked:
    """A `python -m broker` whose output can be read; of subprocess.Popen what tests need."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        errors: IO[bytes],
        *,
        clock_off_s: int = 0,
    ) -> None:
        """`clock_off_s`: how wrong the clock is that this process sees."""
        self._lock = threading.Lock()
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.stdout: IO[str] = os.fdopen(reading)
        try:
            request = {"arguments": list(arguments), "env": dict(env), "clock_off_s": clock_off_s}
            self.pid: int = _server().ask(request, writing, errors.fileno())
        finally:
            os.close(writing)
        # It is there even if the process has ended meanwhile: nobody has asked for its exit code.
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._ask_for_code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ask_for_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("broker", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ask_for_code(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._ended, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1000):
                return None
            with self._lock:
                if self.returncode is None:
                    self.returncode = _server().ask({"reap": self.pid})
        return self.returncode

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            os.close(self._ended)


class _Server:
    """Asked by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(64)
        assert answer, "the process that nodes are forked off has ended"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_starting = threading.Lock()
_started: list[_Server] = []


def _server() -> _Server:
    with _starting:
        if not _started:
            _started.append(_Server())
        return _started[0]


def _serve(requests: socket.socket) -> list[str]:
    """Until pytest ends; returns only in a process that was forked, what it is to do."""
    alive: set[int] = set()
    while True:
        data, ancillary, _, _ = requests.recvmsg(REQUEST_BYTES_MAX, socket.CMSG_SPACE(2 * 4))
        if not data:
            break
        request = json.loads(data)
        if reap := request.get("reap"):
            alive.discard(reap)
            answer = os.waitstatus_to_exitcode(os.waitpid(reap, 0)[1])
        else:
            descriptors = array.array("i")
            descriptors.frombytes(ancillary[0][2])
            if not (answer := os.fork()):
                requests.close()
                return _become(request, *descriptors)
            alive.add(answer)
            for descriptor in descriptors:
                os.close(descriptor)
        requests.send(str(answer).encode())
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _become(request: dict[str, Any], output: int, errors: int) -> list[str]:
    """What subprocess would have done for a process of its own."""
    for descriptor, standard in ((output, 1), (errors, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    if off_s := request["clock_off_s"]:
        right = time.time
        time.time = lambda: right() + off_s
    return request["arguments"]


if __name__ == "__main__":
    import gc

    import broker.server  # noqa: F401 - so that no fork has to
    from broker.cli import run

    # Ctrl-C is for pytest, which ends this server; and what is here now will not become garbage.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    sys.exit(run(_serve(socket.socket(fileno=int(sys.argv[1])))))
