"""Settings of a cluster: its members as they are written down, and the secret that they share."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.settings import WrongValueError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PEER_PORT: Final = 25672
# Two nodes prove to each other that they know it, by messages that an eavesdropper sees and can
# try guesses on.
SECRET_CHARS_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096
# Nobody else may read it, and nobody but its owner may change it. The group may read it, because
# that is how container platforms hand a secret to a process that is not root.
_FORBIDDEN_MODE: Final = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP

NODE_NAME: Final = r"[\w.-]+(@[\w.-]+)?"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\],=/]+)(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect or listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A node as one node's configuration knows it."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}={self.address}"


def parse_address(text: str) -> Address:
    """Read `host`, `host:port` or `[ipv6]:port`."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise WrongValueError(f"{text!r} is not an address; it must be host:port")
    port = int(match["port"]) if match["port"] else DEFAULT_PEER_PORT
    if not 1 <= port <= 65535:
        raise WrongValueError(
            f"the port in {text!r} is not one that others can reach; it must be from 1 to 65535"
        )
    return Address(match["host"].strip("[]"), port)


def parse_member(text: str) -> ClusterMember:
    """Read `name=host:port`."""
    name, separator, address = text.partition("=")
    if not separator:
        raise WrongValueError(f"{text.strip()!r} is not a node; it must be name=host:port")
    return _member(name.strip(), address)


def _member(name: str, address: str) -> ClusterMember:
    if not re.fullmatch(NODE_NAME, name):
        raise WrongValueError(
            f"{name!r} is not the name of a node; it may have letters, digits, '.', '_', '-' and @"
        )
    return ClusterMember(name, parse_address(address))


@dataclass(frozen=True)
class Members:
    """The nodes of a cluster: a table in TOML, `name=host:port` separated by commas in text."""

    allowed: str = "a list of name=host:port, no name or address twice"

    def from_text(self, text: str) -> tuple[ClusterMember, ...]:
        return _distinct([parse_member(part) for part in text.split(",")] if text.strip() else [])

    def check(self, value: object) -> tuple[ClusterMember, ...]:
        if isinstance(value, str):
            return self.from_text(value)
        if isinstance(value, dict):
            if not all(isinstance(address, str) for address in value.values()):
                raise ValueError
            return _distinct([_member(name, address) for name, address in value.items()])
        if isinstance(value, tuple) and all(isinstance(one, ClusterMember) for one in value):
            return _distinct(list(value))
        raise ValueError


def _distinct(members: list[ClusterMember]) -> tuple[ClusterMember, ...]:
    by_name: dict[str, ClusterMember] = {}
    by_address: dict[Address, ClusterMember] = {}
    for member in members:
        if member.name in by_name:
            raise WrongValueError(f"two nodes are called {member.name!r}")
        other = by_address.get(member.address)
        if other is not None:
            raise WrongValueError(
                f"nodes {other.name!r} and {member.name!r} have the same address {member.address}"
            )
        by_name[member.name] = by_address[member.address] = member
    return tuple(members)


@dataclass(frozen=True)
class ListenAddress:
    """An address to listen on, or nothing."""

    allowed: str = "an address of the form host:port"

    def from_text(self, text: str) -> Address | None:
        return parse_address(text) if text else None

    def check(self, value: object) -> Address | None:
        if value is None or isinstance(value, Address):
            return value
        if not isinstance(value, str):
            raise ValueError
        return self.from_text(value)


@dataclass(frozen=True)
class Secret:
    """A text that is not shown; empty for none."""

    allowed: str = f"a text of at least {SECRET_CHARS_MIN} characters"

    def from_text(self, text: str) -> str:
        return self.check(text)

    def check(self, value: object) -> str:
        # What is wrong is said without the value: a mistyped secret is still a secret.
        if not isinstance(value, str):
            raise WrongValueError(f"it must be {self.allowed}")
        if value and len(value) < SECRET_CHARS_MIN:
            raise WrongValueError(f"it is too short; it must be {self.allowed}")
        return value


def read_secret(path: Path) -> str:
    """The secret in a file that only its owner, or a group with care, can read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise WrongValueError(f"{path} cannot be read: {error.strerror}") from error
    if mode & _FORBIDDEN_MODE:
        raise WrongValueError(
            f"{path} has mode {stat.S_IMODE(mode):03o}: others can get at the secret; chmod 600 it"
        )
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise WrongValueError(f"{path} is not UTF-8 text") from None
    if len(data) > SECRET_BYTES_MAX or len(text) < SECRET_CHARS_MIN:
        raise WrongValueError(
            f"{path} must hold a secret of {SECRET_CHARS_MIN} to {SECRET_BYTES_MAX} characters"
        )
    return text


def require_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise WrongValueError(f"{path} cannot be read: {error.strerror}") from error
