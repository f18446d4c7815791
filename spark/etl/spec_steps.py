"""Steps of a pipeline, from the file's tables to values: a reader for each kind."""

from collections.abc import Callable
from typing import Final, Literal, cast

from spark.etl.spec import (
    Cast,
    Deduplicate,
    Filter,
    FrameFunction,
    Join,
    Lookup,
    RowFunction,
    Select,
    Sql,
    State,
    Step,
    Validate,
    Window,
)
from spark.etl.spec_tables import SpecTable
from spark.option_values import read_span_ms

_How = Literal["inner", "left"]


def read_step(table: SpecTable, name: str) -> Step:
    kind = table.choice("kind", KINDS)
    found = KINDS[kind](table, name)
    table.done()
    return found


def _filter(table: SpecTable, name: str) -> Step:
    return Filter(name, table.needed("input"), table.needed("where"))


def _select(table: SpecTable, name: str) -> Step:
    columns = _columns(table, "columns")
    if not columns:
        table.fail("columns", "names of columns and their expressions: it is missing")
    return Select(name, table.needed("input"), columns, keep=table.flag("keep", default=False))


def _map(table: SpecTable, name: str) -> Step:
    """A select that keeps what is there."""
    columns = _columns(table, "columns")
    if not columns:
        table.fail("columns", "names of columns and their expressions: it is missing")
    return Select(name, table.needed("input"), columns, keep=table.flag("keep", default=True))


def _columns(table: SpecTable, key: str) -> dict[str, str]:
    """By name and expression; a list of names is those columns as they are."""
    try_list = not isinstance(table.peek(key), dict)
    if try_list:
        return {each: f"`{each}`" for each in table.texts(key)}
    return table.texts_by_name(key)


def _cast(table: SpecTable, name: str) -> Step:
    types = table.texts_by_name("types")
    if not types:
        table.fail("types", "names of columns and their types: it is missing")
    return Cast(name, table.needed("input"), types)


def _validate(table: SpecTable, name: str) -> Step:
    required, checks = table.texts("required"), table.texts_by_name("check")
    if not required and not checks:
        table.fail("", "required or check: one of them is needed")
    return Validate(name, table.needed("input"), required, checks)


def _python(table: SpecTable, name: str) -> Step:
    function = _import_path(table, "function")
    if table.choice("mode", ("row", "frame"), "frame" if table.has("inputs") else "row") == "frame":
        return FrameFunction(name, _inputs(table), function)
    return RowFunction(name, table.needed("input"), function, table.needed("schema"))


def _import_path(table: SpecTable, key: str) -> str:
    path = table.needed(key)
    module, colon, attribute = path.partition(":")
    words = [*module.split("."), *attribute.split(".")]
    if not colon or not all(word.isidentifier() for word in words):
        table.fail(key, f"an import path such as 'shop.rules:enrich', not {path!r}")
    return path


def _inputs(table: SpecTable) -> tuple[str, ...]:
    if table.has("input"):
        return (table.needed("input"),)
    inputs = table.texts("inputs")
    return inputs or table.fail("inputs", "it is missing")


def _sql(table: SpecTable, name: str) -> Step:
    return Sql(name, _inputs(table), table.needed("query"))


def _window(table: SpecTable, name: str) -> Step:
    size, slide, gap = table.span("size"), table.span("slide"), table.span("gap")
    if (size is None) == (gap is None):
        table.fail("size", "size (tumbling; with slide, sliding) or gap (session): one of them")
    if slide is not None and size is None:
        table.fail("slide", "a session window has no slide")
    if slide is not None and size is not None and _ms(slide) > _ms(size):
        table.fail("slide", f"{slide} is more than size, {size}: records between would be lost")
    aggregates = table.texts_by_name("aggregates")
    if not aggregates:
        table.fail("aggregates", "names of columns and what they add up: it is missing")
    by = table.texts("by")
    for column in ("window_start", "window_end", *by):
        if column in aggregates:
            table.fail("aggregates", f"{column} is the name of another column")
    time = table.text("time")
    return Window(name, table.needed("input"), by, aggregates, size, slide, gap, time)


def _ms(span: str) -> int:
    found = read_span_ms(span)
    assert found is not None
    return found


def _deduplicate(table: SpecTable, name: str) -> Step:
    keys = table.texts("keys")
    return Deduplicate(name, table.needed("input"), keys or table.fail("keys", "it is missing"))


def _join(table: SpecTable, name: str) -> Step:
    left, right = table.needed("left"), table.needed("right")
    if left == right:
        table.fail("right", "it is the same as left: give one of them another name with a step")
    on, condition, within = table.texts("on"), table.text("condition"), table.span("within")
    if not on:
        table.fail("on", "the columns that are equal on both sides: it is missing")
    if (within is None) == (condition is None):
        table.fail("within", "within, a time, or condition, with event times of both: one of them")
    how = cast("_How", table.choice("how", ("inner", "left"), "inner"))
    return Join(name, left, right, on, within, condition, how, _columns(table, "columns"))


def _lookup(table: SpecTable, name: str) -> Step:
    how = cast("_How", table.choice("how", ("inner", "left"), "left"))
    columns = _columns(table, "columns")
    return Lookup(
        name, table.needed("input"), table.needed("table"), table.needed("key"), how, columns
    )


def _state(table: SpecTable, name: str) -> Step:
    keys = table.texts("keys") or table.fail("keys", "it is missing")
    time = table.choice("time", ("none", "processing", "event"), "none")
    return State(
        name,
        table.needed("input"),
        keys,
        _import_path(table, "processor"),
        table.needed("schema"),
        cast("Literal['none', 'processing', 'event']", time),
    )


KINDS: Final[dict[str, Callable[[SpecTable, str], Step]]] = {
    "filter": _filter,
    "select": _select,
    "map": _map,
    "cast": _cast,
    "validate": _validate,
    "python": _python,
    "sql": _sql,
    "window": _window,
    "deduplicate": _deduplicate,
    "join": _join,
    "lookup": _lookup,
    "state": _state,
}
