"""Which broker a query means, and as whom: the options that source and sink share.

`url` is amqp://user:password@host:port/vhost, with commas between the nodes of a cluster. Or the
parts by themselves: `host`, `port`, `vhost`. `user` and `password` go with either. Every process
of the query connects for itself, so it must be an address that all of them can reach.
"""

from dataclasses import dataclass, replace
from typing import Final

from clients.stream_address import DEFAULT_PORT, Address
from spark.errors import OptionError
from spark.option_values import Options

BROKER_OPTIONS: Final = ("url", "host", "port", "vhost", "user", "password", "reconnectTimeout")
# A broker that has millions of messages to read when it starts takes its time.
RECONNECT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Broker:
    address: Address
    reconnect_s: float  # for how long a broker may be away before a query fails


def broker_of(options: Options) -> Broker:
    """Raises OptionError."""
    address = _of_url(options) if options.given("url") else _of_parts(options)
    user, password = options.text("user"), options.text("password")
    if user is not None:
        address = replace(address, user=user)
    if password is not None:
        address = replace(address, password=password)
    reconnect_ms = options.span_ms("reconnectTimeout")
    return Broker(address, (RECONNECT_MS if reconnect_ms is None else reconnect_ms) / 1000)


def _of_url(options: Options) -> Address:
    url = options.text("url") or ""
    both = options.given("host", "port", "vhost")
    if both:
        raise OptionError(f"url says what {both[0]} says too: give one of them")
    try:
        address = Address.of_url(url)
    except ValueError as error:
        raise OptionError(f"url: {error}") from None
    login = url.partition("://")[2].rpartition("@")[0]
    said = [
        name for name, part in zip(("user", "password"), login.split(":"), strict=False) if part
    ]
    if again := options.given(*said):
        raise OptionError(f"url says what {again[0]} says too: give one of them")
    return address


def _of_parts(options: Options) -> Address:
    port = options.number("port", minimum=1, maximum=65535)
    return Address(
        options.text("host") or "127.0.0.1",
        port or DEFAULT_PORT,
        "guest",
        "guest",
        options.text("vhost") or "/",
    )
