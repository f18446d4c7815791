"""Python in Arrow batches: functions as Spark's, and values where one that does not fit spoils
its own row only."""

from collections.abc import Callable
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType

_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def scalar_udf(function: Callable[[Any], Any], kind: DataType) -> Callable[[Column], Column]:
    """From an array to an array of this type, of the same length; it says so in its hints."""
    made: Any = cast("Any", arrow_udf)(function, kind)
    # Else Spark would call it for a filter behind it, and then again.
    found: Callable[[Column], Column] = made.asNondeterministic()
    return found


def to_python(values: Any) -> list[Any]:
    """All at once; if Python has no value for something (a year after 9999, text that is not
    UTF-8), one by one: in its place there is the error."""
    try:
        found: list[Any] = values.to_pylist()
    except _MISFITS:
        return [_value(each) for each in values]
    return found


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except _MISFITS as error:
        return error


def as_numbers(values: Any) -> Any:
    """Times and dates as what they are counted in, which has no end where Python's have one."""
    kind = _numbers(values.type)
    return values if kind == values.type else values.cast(kind)


def _numbers(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_numbers(each.type)) for each in kind])
    return kind


def to_arrow(rows: list[Any], kind: Any, instead: Callable[[Exception], Any]) -> Any:
    """All at once; if something does not fit, one by one to find out what."""
    try:
        return pa.array(rows, kind)
    except _MISFITS:
        return pa.array([_fitting(row, kind, instead) for row in rows], kind)


def _fitting(row: Any, kind: Any, instead: Callable[[Exception], Any]) -> Any:
    try:
        pa.array([row], kind)
    except _MISFITS as error:
        return instead(error)
    return row
