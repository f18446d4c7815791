"""How sources, steps and sinks hang together: what is wrong with that, and where records fail.

A straight part of a pipeline hands on each record by itself, with where it came from. What fails
there (at a source, a cast, a check, a function) becomes a dead letter. A front is the last place of
a straight part: behind it are windows, joins, SQL, or a sink.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import NoReturn

from spark.etl.errors import SpecError
from spark.etl.spec import (
    STATEFUL,
    STRAIGHT,
    Deduplicate,
    Join,
    Lookup,
    PipelineSpec,
    RowFunction,
    Select,
    Sink,
    Source,
    State,
    Step,
    Window,
    inputs_of,
)


def check_graph(spec: PipelineSpec) -> None:
    """Raises SpecError."""
    _check_names(spec)
    _check_cycles(spec)
    _check_unused(spec)
    for step in spec.steps.values():
        _check_step(spec, step)
    for sink in spec.sinks.values():
        _check_mode(spec, sink)


def upstream(spec: PipelineSpec, name: str) -> list[str]:
    """All that it is made of, sources first; itself last. No tables."""
    found: dict[str, None] = {}

    def visit(each: str) -> None:
        if each in spec.steps:
            for before in inputs_of(spec.steps[each]):
                visit(before)
        found.setdefault(each)

    visit(name)
    return list(found)


def is_straight(spec: PipelineSpec, name: str) -> bool:
    while name in spec.steps:
        step = spec.steps[name]
        if not isinstance(step, STRAIGHT):
            return False
        name = step.input
    return True


def fronts(spec: PipelineSpec, name: str) -> list[str]:
    """Where the straight parts end that it is made of, in order, each once."""
    if is_straight(spec, name):
        return [name]
    found = [front for before in inputs_of(spec.steps[name]) for front in fronts(spec, before)]
    return list(dict.fromkeys(found))


def event_times(spec: PipelineSpec, name: str) -> list[str]:
    """Columns of sources above it that have a watermark, by the names that they have there."""
    if name in spec.sources:
        source = spec.sources[name]
        return [source.event_time] if source.event_time and source.watermark else []
    step = spec.steps[name]
    before = [time for each in inputs_of(step) for time in event_times(spec, each)]
    if isinstance(step, Select):
        before = [time for each in before for time in _selected(step, each)]
    return list(dict.fromkeys(before))


def _selected(step: Select, column: str) -> list[str]:
    """The names of a column behind the step: it may have another one, or be gone."""
    if step.keep or column in step.columns:
        return [column]
    return [name for name, text in step.columns.items() if text.strip().strip("`") == column]


def needing_watermark(spec: PipelineSpec, front: str) -> list[Step]:
    """Steps behind it that know by its event time when to let go of what they keep."""
    return [
        step
        for step in spec.steps.values()
        if needs_watermark(step) and front in fronts(spec, step.name)
    ]


def needs_watermark(step: Step) -> bool:
    if isinstance(step, State):
        return step.time == "event"
    return isinstance(step, STATEFUL)


def stateful_steps(spec: PipelineSpec, name: str) -> list[Step]:
    above = (spec.steps[each] for each in upstream(spec, name) if each in spec.steps)
    return [step for step in above if isinstance(step, STATEFUL)]


# What is wrong


def _fail(spec: PipelineSpec, where: str, reason: str) -> NoReturn:
    raise SpecError(f"{spec.file}: {where}: {reason}")


def _place(step: Step) -> str:
    return f"[[steps]] {step.name!r}"


def _check_names(spec: PipelineSpec) -> None:
    streams = [name for name, source in spec.sources.items() if not source.is_table]
    for name in spec.steps:
        if name in spec.sources:
            _fail(spec, f"[[steps]] {name!r} name", "a source has it")
    known = [*streams, *spec.steps]
    for where, name in _references(spec):
        if name not in known:
            if name in spec.sources:
                _fail(spec, where, f"{name} is a table: use it with a step of kind lookup")
            _fail(spec, where, f"there is no source or step {name!r}{_hint(name, known)}")
    for step in spec.steps.values():
        if isinstance(step, Lookup) and step.table not in spec.tables:
            other = f"there is no table {step.table!r}{_hint(step.table, [*spec.tables])}"
            is_stream = "it is a stream: its source needs kind = 'table'"
            _fail(spec, f"{_place(step)} table", is_stream if step.table in known else other)


def _references(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    for step in spec.steps.values():
        for name in inputs_of(step):
            yield f"{_place(step)} input", name
    for sink in spec.sinks.values():
        yield f"[[sinks]] {sink.name!r} input", sink.input


def _hint(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"; is it {close[0]}?" if close else ""


def _check_cycles(spec: PipelineSpec) -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            _fail(spec, f"[[steps]] {name!r} input", f"steps go round in a circle: {circle}")
        if name in spec.steps and name not in done:
            for before in inputs_of(spec.steps[name]):
                visit(before, (*path, name))
            done.add(name)

    for name in spec.steps:
        visit(name, ())


def _check_unused(spec: PipelineSpec) -> None:
    used = {each for sink in spec.sinks.values() for each in upstream(spec, sink.input)}
    for step in spec.steps.values():
        if step.name not in used:
            _fail(spec, _place(step), "no sink gets anything of it")
        if isinstance(step, Lookup):
            used.add(step.table)
    for name in spec.sources:
        if name not in used:
            _fail(spec, f"[sources.{name}]", "no sink gets anything of it")


def _check_step(spec: PipelineSpec, step: Step) -> None:
    if isinstance(step, RowFunction) and not is_straight(spec, step.name):
        _fail(
            spec,
            f"{_place(step)} input",
            f"{step.input} is not made of single records (it is behind a window, a join or SQL), "
            "so that a failure would have no record: put the function before that",
        )
    if needs_watermark(step):
        _check_watermarks(spec, step)
    if isinstance(step, Window) and step.time is None:
        times = event_times(spec, step.input)
        if len(times) > 1:
            _fail(spec, f"{_place(step)} time", f"which column: {' or '.join(times)}?")
    if isinstance(step, Join) and step.condition is None:
        for side in (step.left, step.right):
            if len(event_times(spec, side)) > 1:
                _fail(
                    spec,
                    f"{_place(step)} within",
                    f"{side} has more than one event time: say with condition which one is meant",
                )


def _check_watermarks(spec: PipelineSpec, step: Step) -> None:
    """Without them state would grow for ever."""
    for name in upstream(spec, step.name):
        source: Source | None = spec.sources.get(name)
        if source is not None and source.watermark is None:
            kinds = {Window: "window", Join: "join", Deduplicate: "deduplicate", State: "state"}
            _fail(
                spec,
                f"[sources.{name}] watermark",
                f"it is missing, and step {step.name!r} ({kinds[type(step)]}) needs it to know "
                "when what it keeps can be let go",
            )


def _check_mode(spec: PipelineSpec, sink: Sink) -> None:
    if sink.mode == "append":
        return
    where = f"[[sinks]] {sink.name!r} mode"
    stateful = stateful_steps(spec, sink.input)
    windows = [step for step in stateful if isinstance(step, Window)]
    if not windows:
        _fail(spec, where, f"{sink.mode} is for results of windows; use append")
    if len(stateful) > 1:
        _fail(spec, where, f"{sink.mode} is for one window, not {len(stateful)} stateful steps")
    if any(step.gap is not None for step in windows) and sink.mode == "update":
        _fail(spec, where, "session windows have no updates; use append")
