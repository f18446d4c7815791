"""What a node needs of its machine before it can serve, and plain words if it cannot have it."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pathlib import Path


class StartupError(Exception):
    """The node cannot start for a reason the operator can mend, told in one sentence."""


class DiskFailedError(StartupError):
    """The node has to stop, because its disk no longer keeps what it is told."""


async def open_listeners(host: str, port: int, *, purpose: str) -> list[trio.SocketListener]:
    """Listen on a port; `purpose` names it in the error, as in "AMQP"."""
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise StartupError(
            f"cannot listen for {purpose} on {host}:{port}: {_reason(error)}"
        ) from error


def prepare_data_dir(path: Path) -> None:
    """Make sure that there is a directory in which files can be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Trying is the only answer that also covers read-only mounts and foreign file systems.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise StartupError(f"cannot use data directory {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
