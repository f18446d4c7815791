"""The interface that every exchange type's binding table has."""

from collections.abc import Mapping
from typing import Protocol, TypeAlias


class Destination(Protocol):
    """A queue or an exchange, hashed and compared by identity."""

    @property
    def name(self) -> str: ...


# A dict used as an ordered set: the values mean nothing, so that a table may `update` it with
# whatever mapping it keeps its destinations in.
Found: TypeAlias = dict[Destination, object]
Arguments: TypeAlias = Mapping[str, object]


class BindingTable(Protocol):
    """The bindings of one exchange, laid out for matching.

    The caller never binds the same (destination, key, arguments) twice and unbinds only what is
    bound; see `exchanges.exchange.Exchange`, which keeps the register.
    """

    def __init__(self, exchange_arguments: Arguments, /) -> None: ...

    @property
    def reads_headers(self) -> bool:
        """Whether the message's headers have a say; if not, `match` may be given none."""
        ...

    @property
    def reads_every_key(self) -> bool:
        """Whether CC and BCC keys have a say too, or only the routing key (if any)."""
        ...

    def bind(self, destination: Destination, key: str, arguments: Arguments, /) -> None: ...

    def unbind(self, destination: Destination, key: str, arguments: Arguments, /) -> None: ...

    def match(self, key: str, headers: Arguments, found: Found, /) -> None:
        """Add the destinations for this key and these headers to `found`."""
        ...
