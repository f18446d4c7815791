"""Parameters of the whole broker: values by name, of which only `cluster_name` means something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER_NAME: Final = "cluster_name"
KINDS: Final = frozenset({"global-parameter", "-global-parameter"})


class GlobalParameters(dict[str, Any]):
    """Changed by recorded changes (see broker.journal) only."""

    def make(self, kind: str, name: str, value: Any = None) -> None:
        """Make such a change. Making it twice changes nothing."""
        if kind == "global-parameter":
            self[name] = value
        else:
            self.pop(name, None)

    def changes(self) -> Iterator[list[Any]]:
        """Those that make what is there from nothing."""
        for name, value in self.items():
            yield ["global-parameter", name, value]
