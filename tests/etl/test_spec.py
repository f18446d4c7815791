"""Pipeline files: what is wrong with one is told in a line that names file, table and key."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from spark.etl.errors import SpecError
from spark.etl.past_queries import Past
from spark.etl.spec import Filter, Join, StreamSink, Window
from spark.etl.spec_queries import LETTERS_NAME, Letters, query_shapes
from spark.etl.spec_reading import FILE_BYTES_MAX, STEPS_MAX, read_file, read_spec
from tests.support.process import ROOT

GOOD = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"

[sources.orders]
topic = "orders"
schema = "id bigint, user string, at timestamp"
event_time = "at"
watermark = "10 minutes"

[sources.users]
kind = "table"
topic = "users"
schema = { user = "string", country = "string" }

[[steps]]
name = "large"
kind = "filter"
input = "orders"
where = "id > 10"

[[steps]]
name = "placed"
kind = "lookup"
input = "large"
table = "users"
key = "user"
columns = ["country"]

[[steps]]
name = "sums"
kind = "window"
input = "placed"
size = "1h"
by = ["country"]
aggregates = { orders = "count(*)" }

[[sinks]]
kind = "stream"
name = "out"
input = "sums"
topic = "sums"
"""


def read(text: str) -> Any:
    return read_spec(tomllib.loads(text), "shop.toml", Path("/nowhere"))


def test_a_file_is_read_as_it_is_meant() -> None:
    spec = read(GOOD)
    assert spec.name == "shop"
    assert spec.checkpoint == "/nowhere/checkpoint"
    assert spec.sources["orders"].watermark == "600 seconds"
    assert spec.sources["users"].schema.ddl == "`user` string, `country` string"
    assert spec.steps["large"] == Filter("large", "orders", "id > 10")
    window = spec.steps["sums"]
    assert isinstance(window, Window)
    assert (window.size, window.slide, window.gap) == ("3600 seconds", None, None)
    assert spec.sinks["out"] == StreamSink("out", "sums", "sums", "json")


# What is replaced by what, and what is then said.
WRONG = [
    ('name = "shop"', 'nam = "shop"', "shop.toml: [pipeline] name: it is missing"),
    (
        'checkpoint = "checkpoint"',
        'checkpoint = "s3://bucket/x"',
        "[pipeline] checkpoint: a directory of this machine, or one that is mounted here",
    ),
    ('name = "shop"', 'name = "shop"\nbroker = "http://x"', "[pipeline] broker: "),
    (
        'name = "shop"',
        'name = "shop"\ntrigger = "soon"',
        "[pipeline] trigger: a time such as '30s' or '10 minutes', not 'soon'",
    ),
    (
        'name = "shop"',
        'name = "shop"\nregister = "x"',
        "[pipeline] register: there is no such key here; is it registry?",
    ),
    (
        "[sources.users]",
        "[limits]\nmax_offsets_per_trigger = 0\n[sources.users]",
        "[limits] max_offsets_per_trigger: a whole number from 1 to",
    ),
    ("[sources.users]", "[extra]\n[sources.users]", "extra: there is no such key here"),
    ("[sources.orders]", "[sources.or-ders]", "'or-ders' is no name"),
    ('topic = "orders"', "", "[sources.orders] topic: the name of a stream, or topics"),
    ('topic = "orders"', "topics = []", "[sources.orders] topics: the list is empty"),
    ('topic = "orders"', 'topic = "a,b"', "[sources.orders] topic: a name of 1 to 251 bytes"),
    ('topic = "orders"', 'topic = " lead"', "without a comma, or spaces around it"),
    ('topic = "sums"', 'topic = "trail "', "[[sinks]] 'out' topic: a name of 1 to 251 bytes"),
    ('name = "out"', 'name = "dead-letters"', "[[sinks]] 'dead-letters' name: it is taken"),
    ('name = "out"', 'name = "lock"', "[[sinks]] 'lock' name: it is taken, by what a checkpoint"),
    ('name = "out"', 'name = "out.json"', "[[sinks]] 'out.json' name: it is taken"),
    ('name = "out"', 'name = "out.new"', "[[sinks]] 'out.new' name: it is taken"),
    (
        'topic = "orders"',
        'topic = "orders"\nstart = "soon"',
        "[sources.orders] start: ",
    ),
    (
        'topic = "orders"',
        'topic = "orders"\nformat = "xml"',
        "[sources.orders] format: one of json, avro, csv, raw; 'xml' is none",
    ),
    (
        'topic = "orders"',
        'topic = "orders"\nformat = "avro"',
        "[sources.orders] subject: avro has its schema in the registry",
    ),
    (
        'topic = "orders"',
        'topic = "orders"\nsubject = "orders-value"',
        "[sources.orders] subject: json has no subject",
    ),
    ('event_time = "at"', "", "[sources.orders] event_time: the column that watermark is for"),
    (
        'watermark = "10 minutes"',
        "",
        "[sources.orders] watermark: it is missing, and step 'sums' (window) needs it",
    ),
    (
        'kind = "table"',
        "",
        "[[steps]] 'placed' table: it is a stream: its source needs kind = 'table'",
    ),
    ('kind = "filter"', 'kind = "filtre"', "[[steps]] 'large' kind: one of filter, select, map"),
    ('where = "id > 10"', "", "[[steps]] 'large' where: it is missing"),
    ('where = "id > 10"', "where = 5", "[[steps]] 'large' where: a text, not 5"),
    (
        'name = "placed"',
        'name = "large"',
        "[[steps]] 'large' name: another step has it",
    ),
    ('name = "large"', 'name = "orders"', "[[steps]] 'orders' name: a source has it"),
    (
        'input = "orders"',
        'input = "order"',
        "[[steps]] 'large' input: there is no source or step 'order'; is it orders?",
    ),
    (
        'input = "orders"',
        'input = "users"',
        "[[steps]] 'large' input: users is a table: use it with a step of kind lookup",
    ),
    (
        'input = "orders"',
        'input = "sums"',
        "steps go round in a circle: large -> sums -> placed -> large",
    ),
    ('input = "placed"', 'input = "large"', "[[steps]] 'placed': no sink gets anything of it"),
    ('size = "1h"', "", "[[steps]] 'sums' size: size (tumbling"),
    ('size = "1h"', 'size = "1h"\nslide = "2h"', "[[steps]] 'sums' slide: 7200 seconds is more"),
    ('size = "1h"', 'gap = "1h"\nslide = "2h"', "[[steps]] 'sums' slide: a session window has"),
    (
        "aggregates = { orders",
        "aggregates = { country",
        "[[steps]] 'sums' aggregates: country is the name of another column",
    ),
    ('topic = "sums"', "", "[[sinks]] 'out' topic: it is missing"),
    (
        'topic = "sums"',
        'topic = "sums"\nmode = "update"',
        "[[sinks]] 'out' mode: one of append, complete; 'update' is none",
    ),
    (
        'input = "sums"\ntopic = "sums"',
        'input = "large"\ntopic = "x"\nmode = "complete"',
        "[[steps]] 'placed': no sink gets anything of it",
    ),
    (
        'kind = "stream"',
        'kind = "postgres"\nurl = "postgresql://x"\ntable = "t"\nmode = "update"',
        "[[sinks]] 'out' keys: the columns that say which row to update",
    ),
    (
        'kind = "stream"',
        'kind = "queue"',
        "[[sinks]] 1 kind: one of stream, parquet, postgres, console, memory; 'queue' is none",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_what_is_wrong_is_told(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError) as error:
        read(GOOD.replace(old, new, 1))
    assert said in str(error.value)
    assert str(error.value).startswith("shop.toml: ")
    assert "\n" not in str(error.value)


BEHIND = """
[[steps]]
name = "late"
kind = "python"
mode = "row"
input = "sums"
function = "shop.rules:enrich"
schema = "x int"
"""


def test_a_function_of_rows_must_have_records() -> None:
    text = GOOD.replace('input = "sums"', 'input = "late"').replace(
        "[[sinks]]", BEHIND + "[[sinks]]"
    )
    with pytest.raises(SpecError, match="put the function before that"):
        read(text)


@pytest.mark.parametrize("path", ["shop.rules", "shop:1x", ":f", "os;x:f"])
def test_import_paths_are_import_paths(path: str) -> None:
    with pytest.raises(SpecError, match="an import path such as"):
        read(GOOD + BEHIND.replace("shop.rules:enrich", path))


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    with pytest.raises(SpecError, match="No such file"):
        read_file(file)
    file.write_text("[pipeline")
    with pytest.raises(SpecError, match=r"x\.toml: "):
        read_file(file)
    file.write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"x\.toml: "):
        read_file(file)
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(SpecError, match="more than"):
        read_file(file)


def test_a_file_that_is_too_deep_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f"x = {'[' * 5000}{']' * 5000}")
    with pytest.raises(SpecError, match="too deep in each other"):
        read_file(file)


def chained(count: int) -> str:
    steps = [
        f'[[steps]]\nname = "s{n}"\nkind = "filter"\nwhere = "true"\n'
        f'input = "{f"s{n - 1}" if n else "orders"}"\n'
        for n in range(count)
    ]
    head = GOOD.split("[sources.users]", maxsplit=1)[0]
    sink = f'[[sinks]]\nkind = "stream"\ninput = "s{count - 1}"\ntopic = "x"\n'
    return head + "".join(steps) + sink


def test_steps_in_a_row_have_a_limit() -> None:
    assert len(read(chained(STEPS_MAX)).steps) == STEPS_MAX
    for count in (STEPS_MAX + 1, 1500):
        with pytest.raises(SpecError, match=rf"steps: there are {count}, and {STEPS_MAX} at most"):
            read(chained(count))


def test_examples_are_fine() -> None:
    files = sorted((ROOT / "examples" / "etl").glob("*.toml"))
    assert files
    for file in files:
        read_file(file)


# Who writes which dead letters


def test_a_stream_has_the_dead_letters_of_its_sources() -> None:
    (shape,) = query_shapes(read(GOOD))
    assert shape.letters == (Letters("placed", ("orders",)), Letters("users", ("users",)))


def test_each_failure_is_written_by_one_query() -> None:
    more = """
[[steps]]
name = "checked"
kind = "validate"
input = "large"
required = ["id"]
[[sinks]]
kind = "parquet"
input = "checked"
path = "out"
[[sinks]]
kind = "stream"
name = "second"
input = "checked"
topic = "checked"
"""
    spec = read(GOOD + more)
    shapes = {each.name: each for each in query_shapes(spec)}
    assert set(shapes) == {"out", "parquet", "second"}
    assert shapes["parquet"].letters == ()
    assert shapes["second"].letters == (Letters("checked", ("checked",)),)
    assert shapes["second"].fused(spec)
    assert not shapes["out"].fused(spec)
    without = more.split('[[sinks]]\nkind = "stream"', maxsplit=1)[0]
    shapes = {each.name: each for each in query_shapes(read(GOOD + without))}
    assert shapes[LETTERS_NAME].letters == (Letters("checked", ("checked",)),)


SECOND = """
[[sinks]]
kind = "stream"
name = "second"
input = "large"
topic = "large"
"""
OUT = "[[sinks]]" + GOOD.rpartition("[[sinks]]")[2]
ONE, TABLE = "orders", "users"


def past(**queries: tuple[list[str], list[str]]) -> dict[str, Past]:
    """Sources, and stages whose dead letters were written."""
    return {
        name.replace("_", "-"): Past(frozenset(sources), frozenset(letters))
        for name, (sources, letters) in queries.items()
    }


@pytest.mark.parametrize(
    ("queries", "owners"),
    [
        ({}, {"out": [ONE, TABLE]}),
        ({"out": ([ONE, TABLE], [ONE, TABLE])}, {"out": [ONE, TABLE]}),
        ({"second": ([ONE], [ONE])}, {"second": [ONE], "out": [TABLE]}),
        ({"second": ([ONE], [])}, {"second": [ONE], "out": [TABLE]}),  # of an older version
        (
            {"out": ([ONE], []), "second": ([ONE], [ONE])},
            {"second": [ONE], "dead-letters": [TABLE]},
        ),
        ({"dead_letters": ([ONE, TABLE], [ONE, TABLE])}, {"dead-letters": [ONE, TABLE]}),
        ({"gone": ([ONE], [ONE]), "second": ([ONE], [])}, {"second": [ONE], "out": [TABLE]}),
    ],
)
def test_dead_letters_stay_with_the_query_that_wrote_them(
    queries: dict[str, tuple[list[str], list[str]]], owners: dict[str, list[str]]
) -> None:
    """Whichever sinks are before it in the file by now; who takes over reads nothing new."""
    shapes = query_shapes(read(GOOD.replace(OUT, OUT + SECOND)), past(**queries))
    found = {
        shape.name: [stage for each in shape.letters for stage in each.stages]
        for shape in shapes
        if shape.letters
    }
    assert found == owners


def test_a_join_needs_a_time() -> None:
    step = """
[sources.clicks]
topic = "clicks"
schema = "id bigint, clicked timestamp"
event_time = "clicked"
watermark = "1h"
[[steps]]
name = "both"
kind = "join"
left = "orders"
right = "clicks"
on = ["id"]
within = "1h"
[[sinks]]
kind = "stream"
name = "joined"
input = "both"
topic = "x"
"""
    found = read(GOOD + step).steps["both"]
    assert isinstance(found, Join)
    assert (found.within, found.how) == ("3600 seconds", "inner")
    for old, new, said in [
        ('within = "1h"', "", "'both' within: within, a time, or condition"),
        ('on = ["id"]', "", "'both' on: "),
        ('right = "clicks"', 'right = "orders"', "'both' right: it is the same as left"),
        ('watermark = "1h"', "", "[sources.clicks] watermark: it is missing"),
    ]:
        with pytest.raises(SpecError) as error:
            read(GOOD + step.replace(old, new))
        assert said in str(error.value)
