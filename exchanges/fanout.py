"""The fanout exchange: every destination, whatever the key."""

from exchanges import tally
from exchanges.table import Arguments, Destination, Found


class FanoutTable:
    __slots__ = ("_destinations",)

    reads_headers = False
    reads_every_key = False

    def __init__(self, _exchange_arguments: Arguments) -> None:
        self._destinations: dict[Destination, int] = {}

    def bind(self, destination: Destination, _key: str, _arguments: Arguments) -> None:
        tally.add(self._destinations, destination)

    def unbind(self, destination: Destination, _key: str, _arguments: Arguments) -> None:
        tally.remove(self._destinations, destination)

    def match(self, _key: str, _headers: Arguments, found: Found) -> None:
        found.update(self._destinations)
