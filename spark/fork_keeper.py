"""Keeps a fork server (fork_server.py) for this process, the driver: starts it, and starts another.

The socket that clients connect to is the driver's and stays: those that come while there is no
server wait for the next one. If none stays alive the socket is closed, and clients run Python.
"""

import atexit
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from spark import fork_client

SOCKET: Final = "socket"
BACKLOG: Final = 128  # processes that may wait to be started
FAILURES_MAX: Final = 5  # in a row
STEADY_S: Final = 60.0  # a server that lived so long had started well
_LAUNCHER: Final = """\
#!/bin/sh
exec {python} -I -S {client} {socket} {python} "$@"
"""
_log = logging.getLogger("leveret.spark.fork_keeper")


class ForkKeeper:
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="leveret-spark-"))
        self.launcher = self.directory / "python"
        place = str(self.directory / SOCKET)
        text = _LAUNCHER.format(
            python=shlex.quote(sys.executable),
            client=shlex.quote(fork_client.__file__),
            socket=shlex.quote(place),
        )
        self.launcher.write_text(text)
        self.launcher.chmod(0o700)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen(BACKLOG)
        self._is_closing = False
        self._server = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        """Raises OSError."""
        environ: dict[str, Any] = {
            "OMP_NUM_THREADS": "1",  # threads do not survive a fork
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",  # as PySpark has it in all workers
            **os.environ,
        }
        descriptor = self._listener.fileno()
        command = [sys.executable, "-m", "spark.fork_server", str(self.directory), str(descriptor)]
        return subprocess.Popen(  # noqa: S603 - our own
            [*command, str(os.getpid())],
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
            env=environ,
            start_new_session=True,  # it is to see the end of this process, and tidy up
        )

    def keep(self) -> None:
        """Until this process ends."""
        failures = 0
        while True:
            started = time.monotonic()
            code = self._server.wait()
            if self._is_closing:
                return
            _log.warning("the fork server of Spark's Python processes ended (%s)", code)
            failures = 1 if time.monotonic() - started > STEADY_S else failures + 1
            if failures >= FAILURES_MAX:
                break
            try:
                self._server = self._start()
            except OSError as error:
                _log.warning("it cannot be started again: %s", error)
                break
        self._listener.close()

    def close(self) -> None:
        """The server tidies up, unless there is none."""
        self._is_closing = True
        if self._server.poll() is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        assert self._server.stdin is not None
        self._server.stdin.close()


def start_fork_server() -> Path:
    """A command that stands in for Python, as long as this process lives."""
    keeper = ForkKeeper()
    threading.Thread(target=keeper.keep, name="fork server", daemon=True).start()
    atexit.register(keeper.close)
    return keeper.launcher
