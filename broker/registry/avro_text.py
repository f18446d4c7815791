"""The text of an Avro schema, checked against limits and brought into one spelling.

`Resolver` goes through a schema as JSON. It writes names and aliases out in full, takes apart what
Avro allows to be written in several ways, and refuses what is malformed or too large for the code
behind it. Two texts that come out the same are the same schema. What comes out is what the Avro
library is given: that gets aliases without a namespace wrong, and stumbles over logical types that
are to be ignored.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

TEXT_BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 200  # of JSON: some fifty records in each other. The library calls itself
# As the library takes time by the square of these.
FIELDS_MAX: Final = 2000  # of a record
BRANCHES_MAX: Final = 500  # of a union
SYMBOLS_MAX: Final = 20_000  # of an enum
ALIASES_MAX: Final = 100
# Pairs of types in two schemas: a second's work, and some hundred times what honest ones need.
PAIRS_MAX: Final = 50_000
ALL_PAIRS_MAX: Final = 400_000  # for one answer, in which there may be many versions
NAME_CHARS_MAX: Final = 1000

DECIMAL: Final = "leveret.decimal"  # what the library is given instead of that logical type
PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_QUOTED_CHARS_MAX: Final = 80  # of what was sent, in an error


class InvalidSchemaError(Exception):
    """What is wrong with a schema, for whoever sent it."""


class Budget:
    """Of pairs (of types, or of a type and a value) that may still be compared."""

    def __init__(self) -> None:
        self._left = PAIRS_MAX
        self._left_of_all = ALL_PAIRS_MAX

    def begin(self) -> None:
        """Another two schemas."""
        self._left = PAIRS_MAX

    def spend(self) -> None:
        self._left -= 1
        self._left_of_all -= 1
        if self._left < 0 or self._left_of_all < 0:
            raise InvalidSchemaError("comparing it takes too long: it has too many types")


def read_json(text: str) -> Any:
    """Within the limits of size and depth."""
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise InvalidSchemaError(f"it is longer than {TEXT_BYTES_MAX} bytes")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from None
    if not is_within(value, DEPTH_MAX):
        raise _too_deep()
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _too_deep() -> InvalidSchemaError:
    return InvalidSchemaError(f"it is nested deeper than {DEPTH_MAX} levels")


def is_within(value: object, depth_max: int) -> bool:
    """Whether no array or object is deeper than that, found without recursion."""
    level = [value]
    for _ in range(depth_max + 1):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def compact(value: object) -> str:
    """JSON without spaces, its keys in the order in which they came."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:  # half a character, or a number that is too large for JSON
        raise InvalidSchemaError(f"it cannot be written as JSON: {error}") from None
    return text


def spelling(resolved: object) -> str:
    """The same text for all that is the same schema."""
    return json.dumps(resolved, separators=(",", ":"), sort_keys=True)


class Resolver:
    """For a schema and, before it, those that it refers to: the names they define are known."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._logical: list[dict[str, Any]] = []
        self._records: list[dict[str, Any]] = []

    def resolve(self, node: Any, space: str = "") -> Any:
        """`space` is the namespace around it. Raises InvalidSchemaError."""
        if isinstance(node, str):
            return self._reference(node, space)
        if isinstance(node, list):
            if len(node) > BRANCHES_MAX:
                raise InvalidSchemaError(f"a union of more than {BRANCHES_MAX} types")
            branches = [self.resolve(branch, space) for branch in node]
            names = [_name_of(branch) for branch in branches]
            if len(set(names)) < len(names):
                raise InvalidSchemaError("a union has a type twice")
            return branches
        if not isinstance(node, dict):
            raise InvalidSchemaError(f"{_quoted(node)} is no Avro schema")
        kind = node.get("type")
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"there is no type in {_quoted(node)}")
        if kind in _NAMED:
            return self._named(kind, node, space)
        if kind == "array":
            return self._noted({**node, "items": self.resolve(_of(node, "items"), space)})
        if kind == "map":
            return self._noted({**node, "values": self.resolve(_of(node, "values"), space)})
        if kind in PRIMITIVES:
            return self._noted(dict(node)) if len(node) > 1 else kind
        return self._reference(kind, space)

    def simplify(self) -> None:
        """All that was resolved, for the library: logical types are gone, but for what readers and
        writers of decimals must agree on, and errors are records."""
        for node in self._logical:
            kind = node.pop("logicalType")
            if kind == "decimal" and _is_decimal(node):
                node[DECIMAL] = [node["precision"], node.get("scale", 0)]
        for node in self._records:
            node["type"] = "record"

    def _noted(self, node: dict[str, Any]) -> dict[str, Any]:
        if "logicalType" in node:
            self._logical.append(node)
        return node

    def _reference(self, name: str, space: str) -> str:
        if name in PRIMITIVES:
            return name
        for candidate in (full_name(name, space), name):
            if candidate in self.names:
                return candidate
        raise InvalidSchemaError(f"type {_quoted(name)} is not defined before it is used")

    def _named(self, kind: str, node: dict[str, Any], space: str) -> dict[str, Any]:
        name = self._define(node, space)
        inner = name.rpartition(".")[0]
        resolved = {**node, "name": name}
        resolved.pop("namespace", None)
        if "aliases" in node:
            resolved["aliases"] = _aliases(node["aliases"], inner)
        if kind == "enum":
            _check_symbols(node)
        elif kind != "fixed":
            self._records.append(resolved)
            resolved["fields"] = self._fields(name, node, inner)
        return self._noted(resolved)

    def _define(self, node: dict[str, Any], space: str) -> str:
        name = node.get("name")
        given = node.get("namespace", space)
        if not isinstance(name, str) or not isinstance(given, str | None):
            raise InvalidSchemaError(f"there is no name in {_quoted(node)}")
        full = full_name(name, given or "")
        _check_name(full, _FULL_NAME)
        if full in PRIMITIVES:
            raise InvalidSchemaError(f"{full} is the name of a type of Avro's own")
        if full in self.names:
            raise InvalidSchemaError(f"type {full} is defined twice")
        self.names.add(full)
        return full

    def _fields(self, record: str, node: dict[str, Any], space: str) -> list[Any]:
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"record {record} has no fields")
        if len(fields) > FIELDS_MAX:
            raise InvalidSchemaError(f"record {record} has more than {FIELDS_MAX} fields")
        return [self._field(record, field, space) for field in fields]

    def _field(self, record: str, field: Any, space: str) -> dict[str, Any]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise InvalidSchemaError(f"record {record} has a field without a name")
        _check_name(field["name"], _NAME)
        if "type" not in field:
            raise InvalidSchemaError(f"field {field['name']} of {record} has no type")
        resolved = {**field, "type": self.resolve(field["type"], space)}
        if "aliases" in field:
            resolved["aliases"] = _aliases(field["aliases"], "")
        return resolved


def _name_of(branch: Any) -> str:
    """What tells a type from others in a union."""
    if isinstance(branch, dict):
        return str(branch["name"] if branch["type"] in _NAMED else branch["type"])
    return branch if isinstance(branch, str) else "union"


def full_name(name: str, space: str) -> str:
    """By Avro's rules: a name with a dot is one already."""
    return name if "." in name or not space else f"{space}.{name}"


def _aliases(given: Any, space: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(alias, str) for alias in given):
        raise InvalidSchemaError(f"aliases {_quoted(given)} are not a list of names")
    if len(given) > ALIASES_MAX:
        raise InvalidSchemaError(f"more than {ALIASES_MAX} aliases")
    full = [full_name(alias, space) for alias in given]
    for alias in full:
        _check_name(alias, _FULL_NAME)
    return full


def _check_symbols(node: dict[str, Any]) -> None:
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise InvalidSchemaError(f"enum {_quoted(node.get('name'))} has no list of symbols")
    if len(symbols) > SYMBOLS_MAX:
        raise InvalidSchemaError(f"an enum has more than {SYMBOLS_MAX} symbols")
    for symbol in symbols:
        _check_name(symbol, _NAME)


def _check_name(name: str, pattern: re.Pattern[str]) -> None:
    if len(name) > NAME_CHARS_MAX:
        raise InvalidSchemaError(f"a name is longer than {NAME_CHARS_MAX} characters")
    if pattern.fullmatch(name) is None:
        raise InvalidSchemaError(f"{_quoted(name)} is no name in Avro")


def _of(node: dict[str, Any], key: str) -> Any:
    if key not in node:
        raise InvalidSchemaError(f"{node['type']} without {key}")
    return node[key]


def _is_decimal(node: dict[str, Any]) -> bool:
    """What is no valid decimal is to be read as bytes, says the specification."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    return node["type"] in ("bytes", "fixed") and 0 <= scale <= precision > 0


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    shown = text if len(text) <= _QUOTED_CHARS_MAX else text[:_QUOTED_CHARS_MAX] + "…"
    return repr(shown)
