"""Whether the defaults in an Avro schema are values of their fields' types, which the library
does not look at. One that is not fails when a reader first needs it."""

from __future__ import annotations

import json
from typing import Any, Final

from broker.registry.avro_text import Budget, InvalidSchemaError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_COMPLEX: Final = frozenset({"union", "array", "map", "record", "enum", "fixed"})
_LATIN_MAX: Final = 0xFF  # bytes are written as text, a character each
_SHOWN_CHARS_MAX: Final = 80


def check_defaults(schema: Any, budget: Budget) -> None:
    """Of a schema of the library's and all that is in it, each type once."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.type == "record":
            for field in one.fields:
                if field.has_default and not _Fitting(budget).fits(field.type, field.default):
                    shown = json.dumps(field.default)[:_SHOWN_CHARS_MAX]
                    raise InvalidSchemaError(
                        f"the default {shown} of field {field.name} in {one.fullname} "
                        f"is no {field.type.type}"
                    )
                waiting.append(field.type)
        elif one.type == "union":
            waiting += one.schemas
        elif one.type == "array":
            waiting.append(one.items)
        elif one.type == "map":
            waiting.append(one.values)


class _Fitting:
    """Of one default. What was found is remembered: unions in unions would take for ever."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._found: dict[tuple[int, int], bool] = {}

    def fits(self, schema: Any, value: object) -> bool:
        if schema.type not in _COMPLEX:
            return _fits_primitive(schema.type, value)
        pair = (id(schema), id(value))
        found = self._found.get(pair)
        if found is None:
            self._budget.spend()
            found = self._found[pair] = self._fits_complex(schema, value)
        return found

    def _fits_complex(self, schema: Any, value: object) -> bool:
        """A union's default may be of any of its types: Avro 1.12 lifted the rule of the first."""
        kind, fits = schema.type, self.fits
        if kind == "union":
            return any(fits(branch, value) for branch in schema.schemas)
        if kind == "array":
            return isinstance(value, list) and all(fits(schema.items, item) for item in value)
        if kind == "map":
            return isinstance(value, dict) and all(fits(schema.values, v) for v in value.values())
        if kind == "record":
            return isinstance(value, dict) and all(
                fits(field.type, value[field.name]) if field.name in value else field.has_default
                for field in schema.fields
            )
        if kind == "enum":
            return isinstance(value, str) and value in schema.symbols
        return _is_bytes(value) and len(str(value)) == schema.size


def _fits_primitive(kind: str, value: object) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "bytes":
        return _is_bytes(value)
    if isinstance(value, bool):
        return False
    if kind in ("int", "long"):
        limit = INT_MAX if kind == "int" else LONG_MAX
        return isinstance(value, int) and -limit - 1 <= value <= limit
    return isinstance(value, int | float)


def _is_bytes(value: object) -> bool:
    return isinstance(value, str) and all(ord(char) <= _LATIN_MAX for char in value)
