"""What a node needs of its machine before it can serve, and plain words if it cannot have it."""

from __future__ import annotations

import errno
import stat
import tempfile
from typing import TYPE_CHECKING, Final

import trio

from broker import logs

if TYPE_CHECKING:
    from pathlib import Path

    from broker.config import Config

IPV6_WILDCARD: Final = "::"
IPV4_WILDCARD: Final = "0.0.0.0"  # noqa: S104 - the operator asked for every address
# A free port of one family may be taken in the other; hardly ever twice in a row.
FREE_PORT_TRIES: Final = 8

_log = logs.get("startup")


class StartupError(Exception):
    """The node cannot start for a reason the operator can mend, told in one sentence."""


class DiskFailedError(StartupError):
    """The node has to stop, because its disk no longer keeps what it is told."""


class LogBrokenError(Exception):
    """The node has to stop, because what it knows and what its log says are not the same."""


async def open_listeners(host: str, port: int, *, purpose: str) -> list[trio.SocketListener]:
    """Listen on a port; `purpose` names it in the error, as in "AMQP"."""
    try:
        if host == IPV6_WILDCARD:
            return await _listen_in_both_families(port)
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise StartupError(
            f"cannot listen for {purpose} on {host}:{port}: {_reason(error)}"
        ) from error


async def _listen_in_both_families(port: int) -> list[trio.SocketListener]:
    """One port, by a socket for each family, so that IPv4 peers keep their addresses."""
    for tries_left in reversed(range(FREE_PORT_TRIES)):
        listeners = await trio.open_tcp_listeners(port, host=IPV6_WILDCARD)
        bound = listeners[0].socket.getsockname()[1]
        try:
            return [*listeners, *await trio.open_tcp_listeners(bound, host=IPV4_WILDCARD)]
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                return listeners
            for listener in listeners:
                await listener.aclose()
            if port or error.errno != errno.EADDRINUSE or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def prepare_data_dir(path: Path) -> None:
    """Make sure that there is a directory in which files can be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Trying is the only answer that also covers read-only mounts and foreign file systems.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise StartupError(f"cannot use data directory {path}: {_reason(error)}") from error


def warn_of_readable_secrets(path: Path | None, config: Config) -> None:
    """A configuration file with passwords in clear, or the cluster's secret, is for one user."""
    if path is None or not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return
    passwords = any(user.password for user in config.users if user.name != "guest")
    if passwords or (config.cluster_secret and config.cluster_secret_file is None):
        _log.warning("config_readable", path=str(path), reason="others can read its secrets")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
