"""What a checkpoint remembers of its queries: what they read, and whose dead letters they wrote."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOCK: Final = "lock"
SHAPE_ENDING: Final = ".json"
NEW_ENDING: Final = ".new"


@dataclass(frozen=True, slots=True)
class Past:
    """A query that has begun a batch, and so goes on where it was."""

    sources: frozenset[str]
    letters: frozenset[str]  # stages; none in checkpoints of versions that did not note them


def past_queries(checkpoint: Path) -> dict[str, Past]:
    found = {}
    for file in sorted(checkpoint.glob(f"*{SHAPE_ENDING}")):
        name = file.name.removesuffix(SHAPE_ENDING)
        if file.is_file() and (checkpoint / name / "offsets").is_dir():
            shape = json.loads(file.read_text(encoding="utf-8"))
            letters = frozenset(shape.get("letters", ()))
            found[name] = Past(frozenset(shape["sources"]), letters)
    return found
