"""Compatibility levels: which earlier versions count, and who has to be able to read whose data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.registry.avro_check import Parsed, why_unreadable
from broker.registry.avro_text import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Level:
    """`backward`: the new schema reads old data. `forward`: the old schema reads new data."""

    backward: bool = False
    forward: bool = False
    transitive: bool = False  # all versions count, not only the last

    def counting(self, versions: Sequence[int]) -> Sequence[int]:
        """Of a subject's versions, in order, those that a new one is compared with."""
        if not (self.backward or self.forward):
            return ()
        return versions if self.transitive else versions[-1:]


LEVELS: Final = {
    "NONE": Level(),
    "BACKWARD": Level(backward=True),
    "FORWARD": Level(forward=True),
    "FULL": Level(backward=True, forward=True),
    "BACKWARD_TRANSITIVE": Level(backward=True, transitive=True),
    "FORWARD_TRANSITIVE": Level(forward=True, transitive=True),
    "FULL_TRANSITIVE": Level(backward=True, forward=True, transitive=True),
}
DEFAULT_LEVEL: Final = "BACKWARD"


@dataclass(frozen=True, slots=True)
class Unit:
    """The text of a schema with all it refers to, which can be parsed in any thread."""

    text: str
    supports: tuple[str, ...] = ()
    version: int = 0


def objections(level_name: str, new: Parsed, old: Iterable[Unit]) -> list[str]:
    """What speaks against the new schema, by the first of these versions that does."""
    level = LEVELS[level_name]
    budget = Budget()
    found: list[str] = []
    for unit in old:
        earlier = Parsed(unit.text, unit.supports)
        if level.backward and (why := why_unreadable(new, earlier, budget)):
            found.append(f"the new schema cannot read data of version {unit.version}: {why}")
        if level.forward and (why := why_unreadable(earlier, new, budget)):
            found.append(f"version {unit.version} cannot read data of the new schema: {why}")
        if found:
            break
    return found
