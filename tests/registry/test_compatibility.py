"""Who can read whose data: cases by level, and what is said to be readable is read by fastavro."""

import io
import json
from itertools import pairwise

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker.registry.avro_check import Parsed, why_unreadable
from broker.registry.avro_text import Budget
from broker.registry.levels import LEVELS, Unit, objections
from tests.registry.conftest import field, record


def parsed(schema):
    return Parsed(json.dumps(schema))


def reads(reader, writer):
    return why_unreadable(parsed(reader), parsed(writer), Budget()) is None


def enum(*symbols, name="E", **more):
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size, name="F", **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def decimal(precision, scale, kind="bytes"):
    return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": scale}


def array(items):
    return {"type": "array", "items": items}


def mapping(values):
    return {"type": "map", "values": values}


def logical(kind, name):
    return {"type": kind, "logicalType": name}


A, B, R = field("a"), field("b"), record()
LONG_LIST = record(field("next", ["null", "R"], default=None), field("v", "long"))
INT_LIST = record(field("next", ["null", "R"], default=None), field("v", "int"))
TEXT_LIST = record(field("next", ["null", "R"], default=None), field("v", "string"))

# reader, writer, whether the one reads all that the other writes
CASES = {
    "the same": (record(field("a")), record(field("a")), True),
    "a field more, with a default": (record(field("a", default=1)), record(), True),
    "a field more, without one": (record(field("a")), record(), False),
    "a field more, the default is null": (record(field("a", "null", default=None)), record(), True),
    "a field less": (record(), record(field("a")), True),
    "fields in another order": (record(A, B), record(B, A), True),
    "a field renamed": (record(field("b")), record(field("a")), False),
    "a field renamed, with an alias": (record(field("b", aliases=["a"])), record(field("a")), True),
    "the alias is on the wrong side": (record(B), record(field("a", aliases=["b"])), False),
    "two fields for one": (record(A, field("b", aliases=["a"])), record(A), False),
    "one field for two": (record(field("b", aliases=["a"])), record(A, B), False),
    "the type of a field": (record(field("a", "string")), record(field("a", "int")), False),
    "int to long": ("long", "int", True),
    "int to float": ("float", "int", True),
    "int to double": ("double", "int", True),
    "long to float": ("float", "long", True),
    "long to double": ("double", "long", True),
    "float to double": ("double", "float", True),
    "long to int": ("int", "long", False),
    "double to float": ("float", "double", False),
    "float to long": ("long", "float", False),
    "boolean to int": ("int", "boolean", False),
    "string to bytes": ("bytes", "string", True),
    "bytes to string": ("string", "bytes", True),
    "fixed to bytes": ("bytes", fixed(4), False),
    "bytes to fixed": (fixed(4), "bytes", False),
    "into a union that has it": (["null", "int"], "int", True),
    "into a union that has it widened": (["null", "long"], "int", True),
    "into a union without it": (["null", "string"], "int", False),
    "out of a union, one of its types does not fit": ("int", ["null", "int"], False),
    "out of a union, all fit": ("long", ["int", "long"], True),
    "a wider union": (["null", "int", "string"], ["null", "int"], True),
    "a narrower union": (["null", "int"], ["null", "int", "string"], False),
    "unions in another order": (["int", "null"], ["null", "int"], True),
    "items of an array": (array("long"), array("int"), True),
    "items narrower": (array("int"), array("long"), False),
    "values of a map": (mapping("double"), mapping("int"), True),
    "a map and an array": (mapping("int"), array("int"), False),
    "symbols more": (enum("A", "B"), enum("A"), True),
    "symbols less": (enum("A"), enum("A", "B"), False),
    "symbols less, with a default": (enum("A", default="A"), enum("A", "B"), True),
    "an enum of another name": (enum("A", name="X"), enum("A"), False),
    "an enum of another name, with an alias": (enum("A", name="X", aliases=["E"]), enum("A"), True),
    "an enum and a string": ("string", enum("A"), False),
    "a fixed of the same size": (fixed(4), fixed(4), True),
    "a fixed of another size": (fixed(4), fixed(5), False),
    "a fixed of another name": (fixed(4, name="G"), fixed(4), False),
    "a record of another name": (record(name="S"), record(), False),
    "a record of another name, with an alias": (record(name="S", aliases=["R"]), record(), True),
    "an alias is in the namespace of its type": (
        record(name="S", namespace="x", aliases=["R"]),
        record(namespace="x"),
        True,
    ),
    "an alias of another namespace": (
        record(name="S", namespace="x", aliases=["R"]),
        record(namespace="y"),
        False,
    ),
    "an alias in full": (
        record(name="S", namespace="x", aliases=["y.R"]),
        record(namespace="y"),
        True,
    ),
    "another namespace only": (record(namespace="x"), record(namespace="y"), True),
    "an error is a record": ({**record(), "type": "error"}, record(), True),
    "a logical type over its own type": (logical("long", "timestamp-millis"), "long", True),
    "an unknown logical type": (logical("int", "whatever"), "int", True),
    "decimals alike": (decimal(8, 2), decimal(8, 2), True),
    "decimals of another scale": (decimal(8, 3), decimal(8, 2), False),
    "decimals of another precision": (decimal(9, 2), decimal(8, 2), False),
    "a decimal and bytes": (decimal(8, 2), "bytes", True),
    "a decimal that is none, and bytes": (decimal(0, 2), decimal(8, 2), True),
    "within itself": (LONG_LIST, INT_LIST, True),
    "within itself, narrower": (INT_LIST, LONG_LIST, False),
    "within itself, another type": (TEXT_LIST, INT_LIST, False),
    "deep in": (
        record(field("r", {"type": "array", "items": record(field("x"), name="I")})),
        record(field("r", {"type": "array", "items": record(name="I")})),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "verdict"), CASES.values(), ids=CASES.keys())
def test_a_reader_reads_what_a_writer_writes(reader, writer, verdict):
    assert reads(reader, writer) is verdict


NARROW = record(field("a"))
WIDE = record(field("a"), field("b", default=0))
WIDER = record(field("a"), field("b", default=0), field("c", default=0))
STRICT = record(field("a"), field("b"))  # b without a default
LONGER = record(field("a", "long"))
OTHER = record(field("a", "string"))

# versions there are, the new one, level, whether it is taken
LEVEL_CASES = [
    ([NARROW], STRICT, "NONE", True),
    ([NARROW], OTHER, "NONE", True),
    ([NARROW], WIDE, "BACKWARD", True),
    ([NARROW], STRICT, "BACKWARD", False),
    ([NARROW], LONGER, "BACKWARD", True),
    ([LONGER], NARROW, "BACKWARD", False),
    ([STRICT], NARROW, "BACKWARD", True),
    ([NARROW], STRICT, "FORWARD", True),
    ([STRICT], NARROW, "FORWARD", False),
    ([WIDE], NARROW, "FORWARD", True),
    ([LONGER], NARROW, "FORWARD", True),
    ([NARROW], LONGER, "FORWARD", False),
    ([NARROW], WIDE, "FULL", True),
    ([WIDE], NARROW, "FULL", True),
    ([NARROW], STRICT, "FULL", False),
    ([STRICT], NARROW, "FULL", False),
    ([NARROW], LONGER, "FULL", False),
    # The version before the last counts only for transitive levels: b goes with its default.
    ([NARROW, WIDE], STRICT, "BACKWARD", True),
    ([NARROW, WIDE], STRICT, "BACKWARD_TRANSITIVE", False),
    ([NARROW, WIDE], WIDER, "BACKWARD_TRANSITIVE", True),
    ([STRICT, WIDE], NARROW, "FORWARD", True),
    ([STRICT, WIDE], NARROW, "FORWARD_TRANSITIVE", False),
    ([NARROW, WIDE], WIDER, "FORWARD_TRANSITIVE", True),
    ([STRICT, WIDE], NARROW, "FULL", True),
    ([STRICT, WIDE], NARROW, "FULL_TRANSITIVE", False),
    ([NARROW, WIDE], WIDER, "FULL_TRANSITIVE", True),
    ([OTHER, NARROW], WIDE, "FULL", True),
    ([OTHER, NARROW], WIDE, "FULL_TRANSITIVE", False),
]


@pytest.mark.parametrize(("old", "new", "level", "verdict"), LEVEL_CASES)
def test_a_level_takes_a_new_version(old, new, level, verdict):
    units = [Unit(json.dumps(each), version=n) for n, each in enumerate(old, 1)]
    counting = LEVELS[level].counting(units)
    assert (not objections(level, parsed(new), reversed(counting))) is verdict


# Any schemas: what is said to be readable is read

NAMES = st.sampled_from(["a", "b", "c"])
PRIMITIVES = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
)
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.25,
    "bytes": "x",
    "string": "y",
}


def default_of(kind):
    if isinstance(kind, str):
        return DEFAULTS[kind]
    if isinstance(kind, list):
        return default_of(kind[0])
    return {"array": [], "map": {}, "enum": kind.get("symbols", [""])[0], "fixed": "z" * 2}[
        kind["type"]
    ]


ENUMS = st.builds(
    lambda symbols, has_default: {
        **enum(*symbols),
        **({"default": symbols[0]} if has_default else {}),
    },
    st.lists(st.sampled_from("ABC"), min_size=1, unique=True),
    st.booleans(),
)


def complex_types(inner):
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.lists(PRIMITIVES, min_size=1, max_size=3, unique=True),
    )


TYPES = st.one_of(PRIMITIVES, st.recursive(PRIMITIVES, complex_types, max_leaves=3))


@st.composite
def records(draw, kinds=TYPES):
    fields = []
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        kind = draw(kinds if fields else st.one_of(kinds, ENUMS))
        more = {"default": default_of(kind)} if draw(st.booleans()) else {}
        aliases = draw(st.lists(NAMES, max_size=1))
        more |= {"aliases": aliases} if aliases else {}
        fields.append(field(name, kind, **more))
    return record(*fields)


ALIKE = records(st.sampled_from(["int", "long", ["null", "int"], ["null", "long", "string"]]))


@settings(max_examples=100)
@given(*(st.one_of(ALIKE, records()),) * 2)
def test_what_is_said_to_be_readable_is_read_by_fastavro(reader, writer):
    assume(reads(reader, writer))
    parsed_writer, parsed_reader = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    value = generate_one(parsed_writer)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, parsed_writer, value)
    buffer.seek(0)
    got = fastavro.schemaless_reader(buffer, parsed_writer, parsed_reader)
    assert got.keys() == {each["name"] for each in reader["fields"]}


@settings(max_examples=50)
@given(*(st.one_of(ALIKE, records()),) * 3)
def test_levels_say_nothing_that_pairs_do_not(first, second, new):
    units = [Unit(json.dumps(each), version=n) for n, each in enumerate((first, second), 1)]
    backward = [reads(new, old) for old in (first, second)]
    forward = [reads(old, new) for old in (first, second)]
    verdicts = {
        level: not objections(level, parsed(new), LEVELS[level].counting(units)) for level in LEVELS
    }
    assert verdicts == {
        "NONE": True,
        "BACKWARD": backward[1],
        "FORWARD": forward[1],
        "FULL": backward[1] and forward[1],
        "BACKWARD_TRANSITIVE": all(backward),
        "FORWARD_TRANSITIVE": all(forward),
        "FULL_TRANSITIVE": all(backward + forward),
    }


# Spellings

SAME = [
    record(field("a"), namespace="x.y"),
    {"namespace": "x.y", "fields": [{"type": "int", "name": "a"}], "name": "R", "type": "record"},
    record(field("a"), name="x.y.R"),
    record(field("a"), name="x.y.R", namespace="ignored"),
    record(field("a", {"type": "int"}), name="x.y.R"),
]


@pytest.mark.parametrize(("one", "other"), [*pairwise(SAME)])
def test_what_is_written_otherwise_is_the_same_schema(one, other):
    assert parsed(one).spelling == parsed(other).spelling


@pytest.mark.parametrize(
    "other",
    [
        record(field("a"), namespace="x"),
        record(field("a"), namespace="x.y", doc="told"),
        record(field("a", default=1), namespace="x.y"),
        record(field("a", {"type": "int", "logicalType": "date"}), namespace="x.y"),
        record(field("a", "long"), namespace="x.y"),
        record(field("a"), namespace="x.y", aliases=["Old"]),
    ],
)
def test_what_says_something_else_is_another_schema(other):
    assert parsed(other).spelling != parsed(SAME[0]).spelling
