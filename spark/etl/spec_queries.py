"""Which queries a pipeline has: one for each sink, and who of them writes which dead letters.

A sink that is a stream gets the dead letters of its own sources in the same write, so that results
and dead letters of a batch are there at the same moment. Those that only other sinks have are
written by a query for nothing else. Each stage's dead letters are written by one query, and stay
with it: another one, which begins at the beginning, would write the old ones again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spark.etl.past_queries import Past
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


def query_shapes(spec: PipelineSpec, past: Mapping[str, Past] | None = None) -> list[QueryShape]:
    """`past`: those that have run before; without it, as of a pipeline that begins."""
    owners = _owners(spec, past or {})
    shapes = [
        QueryShape(sink.name, sink, _letters(spec, [sink], owners, sink.name))
        for sink in spec.sinks.values()
    ]
    rest = _letters(spec, spec.sinks.values(), owners, LETTERS_NAME)
    if rest:
        shapes.append(QueryShape(LETTERS_NAME, None, rest))
    return shapes


def _owners(spec: PipelineSpec, past: Mapping[str, Past]) -> dict[str, str]:
    """Stages whose records may fail, and the query that writes their dead letters."""
    able: dict[str, list[str]] = {}
    for sink in spec.sinks.values():
        carries = isinstance(sink, StreamSink) and sink.mode == "append"
        for front in _fronts(spec, sink):
            for stage in upstream(spec, front):
                if _may_fail(spec, stage):
                    able.setdefault(stage, []).extend([sink.name] if carries else [])
    owners = {
        stage: _owner(spec, stage, [*queries, LETTERS_NAME], past)
        for stage, queries in able.items()
    }
    own = {stage_of(sink): sink.name for sink in spec.sinks.values() if _may_not_fit(sink)}
    return owners | own


def _owner(spec: PipelineSpec, stage: str, able: list[str], past: Mapping[str, Past]) -> str:
    """Who has always done it; else one that goes on behind what others wrote; else the first.
    One that ran cannot read other sources than it did."""
    sources = {each for each in upstream(spec, stage) if each in spec.sources}
    before = [each for each in able if each in past and sources <= past[each].sources]
    had = [each for each in before if stage in past[each].letters]
    return (had or before or [each for each in able if each not in past] or able)[0]


def _letters(
    spec: PipelineSpec, sinks: Iterable[Sink], owners: Mapping[str, str], query: str
) -> tuple[Letters, ...]:
    """Those that the query writes, each at the first front that has them."""
    found: dict[str, tuple[str, ...]] = {}
    left = {stage for stage, owner in owners.items() if owner == query}
    for sink, front in [(each, front) for each in sinks for front in _fronts(spec, each)]:
        last = [stage_of(sink)] if front == sink.input else []
        stages = tuple(each for each in [*upstream(spec, front), *last] if each in left)
        if stages:
            left.difference_update(stages)
            found[front] = stages
    return tuple(Letters(front, stages) for front, stages in found.items())


def _fronts(spec: PipelineSpec, sink: Sink) -> list[str]:
    return [*fronts(spec, sink.input), *_tables(spec, sink)]


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
