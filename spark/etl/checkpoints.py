"""What is kept of a query beside Spark's own files: the shape that its checkpoint belongs to.

    CHECKPOINT/lock               held while the pipeline runs
    CHECKPOINT/QUERY.json         the shape
    CHECKPOINT/QUERY/offsets/...  Spark's

Spark finds out late, or never, that a checkpoint belongs to another query. So the parts of a
pipeline that state and offsets depend on are compared before anything starts.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from spark.etl.errors import PipelineError
from spark.etl.past_queries import LOCK, NEW_ENDING, SHAPE_ENDING
from spark.etl.plan import Planner, Query
from spark.etl.spec import Join, PipelineSpec, State, inputs_of
from spark.etl.spec_graph import fronts, stateful_steps, upstream
from spark.places import decode

VERSION: Final = 1
OFFSETS_HEAD_LINES: Final = 2  # version and metadata, before a line for each source

Shape = dict[str, Any]
Offsets = dict[str, dict[int, int]]


@contextmanager
def locked(spec: PipelineSpec) -> Iterator[None]:
    """Two processes with the same checkpoint would undo each other's work."""
    spec.path.mkdir(parents=True, exist_ok=True)
    with (spec.path / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(
                f"{spec.checkpoint}: another process runs a pipeline with this checkpoint"
            ) from None
        yield


def shape_of(spec: PipelineSpec, planner: Planner, query: Query) -> Shape:
    """What must be the same for a query to go on where another ended; and what only is noted,
    whose dead letters it writes (spec_queries.py)."""
    sink = query.shape.sink
    ends = [] if sink is None else fronts(spec, sink.input)
    ends += [each.front for each in query.shape.letters]
    sources = [each for end in ends for each in upstream(spec, end) if each in spec.sources]
    state = {} if sink is None else _state_of(spec, planner, sink.input)
    return {
        "version": VERSION,
        "sources": list(dict.fromkeys(sources)),
        "state": state,
        "letters": [stage for each in query.shape.letters for stage in each.stages],
    }


def _state_of(spec: PipelineSpec, planner: Planner, name: str) -> dict[str, Any]:
    found = {}
    for step in stateful_steps(spec, name):
        values = asdict(step)
        values.pop("columns", None)  # made of what a join gives, not kept
        if isinstance(step, Join | State):  # whole rows are kept
            values["rows"] = {
                each: planner.sound(each).schema.simpleString() for each in inputs_of(step)
            }
        found[step.name] = json.loads(json.dumps(values))
    return found


def check_shape(spec: PipelineSpec, query: str, shape: Shape) -> None:
    """Raises PipelineError if the checkpoint is of another query; else it is of this one."""
    file = spec.path / f"{query}{SHAPE_ENDING}"
    if (spec.path / query / "offsets").is_dir() and file.exists():
        _compare(spec, query, json.loads(file.read_text(encoding="utf-8")), shape)
    new = file.with_suffix(NEW_ENDING)
    new.write_text(json.dumps(shape, indent=1), encoding="utf-8")
    new.replace(file)


def _compare(spec: PipelineSpec, query: str, old: Shape, new: Shape) -> None:
    changes = []
    if old["sources"] != new["sources"]:
        changes.append(f"its sources were {_listed(old['sources'])}")
    for name in sorted(old["state"].keys() | new["state"].keys()):
        changes += _changes_of(name, old["state"].get(name), new["state"].get(name))
    if changes:
        raise PipelineError(
            f"{spec.file}: sink {query!r} was changed, and its checkpoint "
            f"({spec.path / query}) is of no use to it: {'; '.join(changes)}. Undo the change, or "
            "give the pipeline another checkpoint, which reads and writes everything anew"
        )


def _changes_of(name: str, old: Shape | None, new: Shape | None) -> list[str]:
    if old is None or new is None:
        return [f"step {name!r} was {'not there' if old is None else 'there'}"]
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    return [f"step {name!r} {key} was {old.get(key)!r}" for key in keys]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def batch_offsets(checkpoint: Path, batch: int) -> Offsets:
    """Where a micro-batch ends, which Spark notes before it runs it."""
    lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    found: Offsets = {}
    for line in lines[OFFSETS_HEAD_LINES:]:
        places = decode(json.loads(line)) if line != "-" else {}
        for (topic, number), offset in places.items():
            found.setdefault(topic, {})[number] = offset
    return found
