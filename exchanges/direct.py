"""The direct exchange: the binding key equals the routing key."""

from exchanges import tally
from exchanges.table import Arguments, Destination, Found


class DirectTable:
    __slots__ = ("_by_key",)

    reads_headers = False
    reads_every_key = True

    def __init__(self, _exchange_arguments: Arguments) -> None:
        self._by_key: dict[str, dict[Destination, int]] = {}

    def bind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        tally.add(self._by_key.setdefault(key, {}), destination)

    def unbind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        destinations = self._by_key[key]
        tally.remove(destinations, destination)
        if not destinations:
            del self._by_key[key]

    def match(self, key: str, _headers: Arguments, found: Found) -> None:
        destinations = self._by_key.get(key)
        if destinations is not None:
            found.update(destinations)
