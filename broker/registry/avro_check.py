"""Whether data written by one Avro schema can be read by another: the Avro library's checker.

What it gets wrong, or takes too long for, is put right here:

- aliases are compared with full names; `Resolver` has written them out by then
- decimals match only if precision and scale do, as the specification says
- where it is not clear which field is which, by names and aliases, readers differ: that is refused
- a record's fields are looked up in a table, not in one that is made again for each field
- the work is bounded
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import avro.compatibility
import avro.schema
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
)
from avro.name import Names

from broker.registry.avro_defaults import check_defaults
from broker.registry.avro_text import (
    DECIMAL,
    Budget,
    InvalidSchemaError,
    Resolver,
    compact,
    read_json,
    spelling,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# Findings of one type. They are added up through all types around it, for each time it is used.
FINDINGS_MAX: Final = 20
REASON_CHARS_MAX: Final = 1000

_merge: Any = avro.compatibility.merge
_incompatible: Any = avro.compatibility.incompatible
_make: Any = avro.schema.make_avsc_object


class Parsed:
    """A schema, as the library has it."""

    def __init__(self, text: str, supports: Sequence[str] = ()) -> None:
        """`supports` are the schemas that it refers to, and those that they do, before them.

        Raises InvalidSchemaError.
        """
        try:
            self._parse(text, supports)
        except InvalidSchemaError:
            raise
        except RecursionError:
            raise InvalidSchemaError("its types are nested too deep") from None
        except Exception as error:  # noqa: BLE001 - a library at the mercy of what was sent
            raise InvalidSchemaError(_innermost(str(error))) from None

    def _parse(self, text: str, supports: Sequence[str]) -> None:
        resolver = Resolver()
        before = [resolver.resolve(read_json(support)) for support in supports]
        value = read_json(text)
        self.text = compact(value)
        resolved = resolver.resolve(value)
        self.spelling = spelling(resolved)
        resolver.simplify()
        names = Names()
        for each in before:
            _make(each, names)
        known = names.names.get(resolved) if isinstance(resolved, str) else None
        self.schema = known or _make(resolved, names)
        check_defaults(self.schema, Budget())


def _innermost(reason: str) -> str:
    """The library says what is wrong after the whole text of all types around it."""
    return reason.rpartition("not a valid Avro schema: ")[2][-REASON_CHARS_MAX:]


class _Checker(ReaderWriterCompatibilityChecker):
    def __init__(self, budget: Budget) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._budget = budget
        self._known: dict[tuple[int, int], SchemaCompatibilityResult] = {}
        self._fields: dict[int, dict[str, Any]] = {}  # of writers' records

    def get_compatibility(
        self,
        reader: Any,
        writer: Any,
        reference_token: str = "/",  # noqa: S107 - a part of a path
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        """As the library's, whose table of pairs that are known degenerates into a list."""
        self._budget.spend()
        pair = (id(reader), id(writer))
        found = self._known.get(pair)
        if found is None:
            # Until it is found out: a type that has itself in it is as good as the rest of it.
            self._known[pair] = avro.compatibility.CompatibleResult
            where = [*(location or ()), reference_token]
            found = _shortened(self.calculate_compatibility(reader, writer, where))
            self._known[pair] = found
        return found

    def calculate_compatibility(
        self, reader: Any, writer: Any, location: list[str]
    ) -> SchemaCompatibilityResult:
        result = super().calculate_compatibility(reader, writer, location)
        if reader.type == writer.type:
            wanted, given = reader.props.get(DECIMAL), writer.props.get(DECIMAL)
            if wanted and given and wanted != given:
                text = f"reader decimal {wanted} does not match writer decimal {given}"
                kind = SchemaIncompatibilityType.type_mismatch
                result = _merge(result, _incompatible(kind, text, location))
        return result

    def check_reader_writer_record_fields(
        self, reader: Any, writer: Any, location: list[str]
    ) -> SchemaCompatibilityResult:
        result = avro.compatibility.CompatibleResult
        written = self._fields_of(writer)
        taken: set[str] = set()
        for number, field in enumerate(reader.fields):
            where = [*location, "fields", str(number)]
            names = {field.name, *field.props.get("aliases", ())} & written.keys()
            if len(names) > 1 or names & taken:
                text = f"field {field.name} is one of several for {', '.join(sorted(names))}"
                found = _incompatible(SchemaIncompatibilityType.name_mismatch, text, where)
            elif names:
                taken |= names
                source = written[next(iter(names))]
                found = self.get_compatibility(field.type, source.type, "type", where)
            elif not field.has_default:
                kind = SchemaIncompatibilityType.reader_field_missing_default_value
                found = _incompatible(kind, field.name, where)
            else:
                continue
            result = _merge(result, found)
            if len(result.incompatibilities) > FINDINGS_MAX:
                break
        return result

    def _fields_of(self, record: Any) -> dict[str, Any]:
        fields = self._fields.get(id(record))
        if fields is None:
            fields = self._fields[id(record)] = {field.name: field for field in record.fields}
        return fields


def _shortened(result: SchemaCompatibilityResult) -> SchemaCompatibilityResult:
    if len(result.incompatibilities) <= FINDINGS_MAX:
        return result
    return SchemaCompatibilityResult(
        SchemaCompatibilityType.incompatible,
        result.incompatibilities[:FINDINGS_MAX],
        set(sorted(result.messages)[:FINDINGS_MAX]),
        set(sorted(result.locations)[:FINDINGS_MAX]),
    )


def why_unreadable(reader: Parsed, writer: Parsed, budget: Budget) -> str | None:
    """Why not all that is written by `writer` can be read by `reader`; None if it can be.

    Raises InvalidSchemaError if that is too much to find out.
    """
    if reader.spelling == writer.spelling:
        return None
    budget.begin()
    try:
        result = _Checker(budget).get_compatibility(reader.schema, writer.schema)
    except RecursionError:
        raise InvalidSchemaError("its types are nested too deep") from None
    if result.compatibility is not SchemaCompatibilityType.incompatible:
        return None
    kinds = sorted({kind.value.upper() for kind in result.incompatibilities})
    places = sorted(place for place in result.locations if place != "/") or ["/"]
    said = "; ".join(sorted(result.messages))
    return f"{', '.join(kinds)} at {', '.join(places)}: {said}"[:REASON_CHARS_MAX]
