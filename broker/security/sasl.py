"""What clients say who they are: SASL responses, and where they call from."""

import struct
from ipaddress import ip_address
from typing import Final, NamedTuple

from broker.protocol.tables import decode_table

EXTERNAL: Final = "EXTERNAL"
PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
MECHANISMS: Final = (EXTERNAL, PLAIN, AMQPLAIN)


class Origin(NamedTuple):
    """Where a connection comes from."""

    host: str
    port: int = 0
    certified_name: str | None = None  # the user whom its certificate names, if it showed one
    local: str = ""  # the address that it connected to, for people
    encrypted: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a peer's address is this machine's own."""
    if not host:
        return False
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 peer of a dual-stack listener
    return (mapped or address).is_loopback


def parse_plain(response: bytes) -> tuple[str, str, bytes]:
    """Split a SASL PLAIN response into (authorization id, user, password)."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise ValueError("a PLAIN response is authzid NUL user NUL password")
    authzid, user, password = parts
    return authzid.decode(), user.decode(), password


def parse_amqplain(response: bytes) -> tuple[str, bytes]:
    """Return (user, password) of an AMQPLAIN response: a field table without its length."""
    table, _ = decode_table(struct.pack(">I", len(response)) + response)
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if isinstance(user, bytes):
        user = user.decode()
    if isinstance(password, str):
        password = password.encode()
    if not isinstance(user, str) or not isinstance(password, bytes):
        raise ValueError("an AMQPLAIN response has LOGIN and PASSWORD strings")
    return user, password
