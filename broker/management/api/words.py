"""The words that the table of the API is written in: schemas, and what is said of a route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from broker.management.listing import PAGE_SIZE, PAGE_SIZE_MAX

Schema: TypeAlias = dict[str, Any]
Query: TypeAlias = Mapping[str, Schema]

ANY: Final[Schema] = {}
TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}
WHOLE: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
REAL: Final[Schema] = {"type": "number"}
TRUTH: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
NOTHING: Final = None  # an answer without a body


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """One route. Errors that every route of its kind can give are not repeated here."""

    summary: str
    answers: Mapping[int, Schema | None]  # by status, those that are no errors
    body: Schema | None = None
    query: Query = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    unhealthy: Schema | None = None  # what a 503 carries that is an answer and no error
    media: str = "application/json"
    forms: bool = False  # the body may be a form as well
    problems: bool = False  # errors are problem+json
    open: bool = False  # no login is needed


Docs: TypeAlias = dict[str, dict[str, Doc]]  # by path and method


# Schemas


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def maybe(schema: Schema) -> Schema:
    """It, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def whole(least: int, most: int | None = None, default: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": least}
    if most is not None:
        schema["maximum"] = most
    if default is not None:
        schema["default"] = default
    return schema


def record(required: str = "", /, **fields: Schema) -> Schema:
    """An object; `required` are names of fields, with spaces between them."""
    schema: Schema = {"type": "object", "properties": fields}
    if required:
        schema["required"] = required.split()
    return schema


def closed(required: str = "", /, **fields: Schema) -> Schema:
    """An object without any other field."""
    return record(required, **fields) | {"additionalProperties": False}


def each(names: str, schema: Schema) -> dict[str, Schema]:
    """The same schema for some fields."""
    return dict.fromkeys(names.split(), schema)


# Routes


def shows(summary: str, schema: Schema, **query: Schema) -> Doc:
    return Doc(summary=summary, answers={200: schema}, query=query)


def sorts(summary: str, items: Schema) -> Doc:
    """A list that can be sorted, and cut to columns."""
    return Doc(summary=summary, answers={200: many(items)}, query=SORTING)


def pages(summary: str, items: Schema, **query: Schema) -> Doc:
    """A list that can be paged as well."""
    page = {"allOf": [ref("Page"), record(items=many(items))]}
    both = {"anyOf": [many(items), page]}
    return Doc(summary=summary, answers={200: both}, query={**LISTING, **query})


def puts(summary: str, body: Schema) -> Doc:
    return Doc(summary=summary, answers={201: NOTHING, 204: NOTHING}, body=body)


def deletes(summary: str, **query: Schema) -> Doc:
    return Doc(summary=summary, answers={204: NOTHING}, query=query)


# What lists look for in a query

PAGING: Final[Query] = {
    "page": whole(1),
    "page_size": whole(1, PAGE_SIZE_MAX, PAGE_SIZE),
    "name": TEXT,
    "use_regex": TRUTH,
}
SORTING: Final[Query] = {"sort": TEXT, "sort_reverse": TRUTH, "columns": TEXT}
# How far back samples are wanted, and how far apart: seconds.
AGES: Final[Query] = {
    f"{kind}_{part}": whole(1)
    for kind in ("lengths", "msg_rates", "data_rates", "node_stats")
    for part in ("age", "incr")
}
LISTING: Final[Query] = {**PAGING, **SORTING, **AGES}
