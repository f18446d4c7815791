"""A real PostgreSQL server for tests, from Debian's package; it must be installed.

The server refuses to run as root: a root user's tests run it as the user `postgres`. Its data are
not in pytest's directories, which are for their owner alone.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.support.ports import free_ports
from tests.support.waiting import eventually

PACKAGE = Path("/usr/lib/postgresql")
START_S = 120.0
STOP_S = 60.0
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class PostgresServer:
    """On a free port of 127.0.0.1, with its data in a directory that is gone when it is closed."""

    def __init__(self, *, durable: bool = False) -> None:
        """`durable`: what it commits survives that it is killed."""
        (self.port,) = free_ports(1)
        self._directory = Path(tempfile.mkdtemp(prefix="leveret-postgres-"))
        self._data = self._directory / "data"
        self._log = self._directory / "log"
        self._settings = () if durable else FAST
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """As SQLAlchemy has it."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def address(self) -> str:
        """As libpq has it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.address, autocommit=True)

    def new_schema(self, name: str) -> str:
        """The URL of one that is empty, as SQLAlchemy has it."""
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}?options=-csearch_path%3D{name}"

    def start(self) -> None:
        command = [str(_program("postgres")), "-D", str(self._data), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        for setting in ("shared_buffers=32MB", "max_connections=50", *self._settings):
            command += ["-c", setting]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._account
            )
        eventually(self._answers, f"PostgreSQL\n{self.log_text()}", within_s=START_S)

    def stop(self) -> None:
        """Cleanly; its clients are cut off."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """As a power cut would end it; SIGQUIT ends its children too."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _make(self) -> None:
        if self._account:
            shutil.chown(self._directory, "postgres", "postgres")
        command = [str(_program("initdb")), "-D", str(self._data), "-U", "postgres"]
        command += ["--auth=trust", "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._account)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PostgreSQL ended\n{self.log_text()}"
        try:
            psycopg.connect(self.address, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(STOP_S)


def _account() -> dict[str, object]:
    """Whom to run it as, for subprocess."""
    if os.getuid() != 0:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": "/"}


def _program(name: str) -> Path:
    """The newest that is installed."""
    found = sorted(PACKAGE.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    assert found, f"PostgreSQL is not installed: there is no {PACKAGE}/*/bin/{name}"
    return found[-1]
