"""Which queries a pipeline has: one for each sink, and who of them writes which dead letters.

A sink that is a stream gets the dead letters of its own sources in the same write, so that results
and dead letters of a batch are there at the same moment. Those that only other sinks have are
written by a query for nothing else. Each stage's dead letters are written by one query.
"""

from dataclasses import dataclass
from typing import Final

from spark.etl.spec import (
    Cast,
    Lookup,
    PipelineSpec,
    RowFunction,
    Sink,
    StreamSink,
    Validate,
)
from spark.etl.spec_graph import fronts, is_straight, upstream

LETTERS_NAME: Final = "dead-letters"
# Files beside the directories of the queries.
LOCK: Final = "lock"
SHAPE_ENDING: Final = ".json"
NEW_ENDING: Final = ".new"


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of these stages, which are all in the straight part that ends at the front."""

    front: str
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryShape:
    name: str  # also of its directory
    sink: Sink | None  # None: dead letters only
    letters: tuple[Letters, ...]

    def fused(self, spec: PipelineSpec) -> bool:
        """Results and dead letters come out of one and the same pass over the records."""
        return self.sink is not None and self.carries and is_straight(spec, self.sink.input)

    @property
    def carries(self) -> bool:
        return bool(self.letters) and self.sink is not None

    def owned(self, front: str) -> tuple[str, ...]:
        return next((each.stages for each in self.letters if each.front == front), ())


def query_shapes(spec: PipelineSpec) -> list[QueryShape]:
    owned: set[str] = set()
    shapes = []
    for sink in spec.sinks.values():
        carries = isinstance(sink, StreamSink) and sink.mode == "append"
        letters = _letters(spec, sink, owned) if carries else ()
        shapes.append(QueryShape(sink.name, sink, letters))
    rest = [each for sink in spec.sinks.values() for each in _letters(spec, sink, owned)]
    if rest:
        shapes.append(QueryShape(LETTERS_NAME, None, tuple(rest)))
    return shapes


def _letters(spec: PipelineSpec, sink: Sink, owned: set[str]) -> tuple[Letters, ...]:
    """Of what is not owned yet; it is then."""
    found = []
    for front in [*fronts(spec, sink.input), *_tables(spec, sink)]:
        stages = tuple(
            each for each in upstream(spec, front) if _may_fail(spec, each) and each not in owned
        )
        if front == sink.input and _may_not_fit(sink) and stage_of(sink) not in owned:
            stages += (stage_of(sink),)
        if stages:
            owned.update(stages)
            found.append(Letters(front, stages))
    return tuple(found)


def stage_of(sink: Sink) -> str:
    """As which it stands beside the sources and steps whose records may fail."""
    return f"sink {sink.name}"


def _may_not_fit(sink: Sink) -> bool:
    """There are rows that cannot be written."""
    return isinstance(sink, StreamSink) and sink.format == "avro" and sink.mode == "append"


def _tables(spec: PipelineSpec, sink: Sink) -> list[str]:
    """Those that it looks up rows in: their records may fail, too."""
    steps = [spec.steps.get(each) for each in upstream(spec, sink.input)]
    return list(dict.fromkeys(step.table for step in steps if isinstance(step, Lookup)))


def _may_fail(spec: PipelineSpec, name: str) -> bool:
    if name in spec.sources:
        source = spec.sources[name]
        return source.format != "raw" or bool(source.required or source.checks)
    return isinstance(spec.steps[name], Cast | Validate | RowFunction)
