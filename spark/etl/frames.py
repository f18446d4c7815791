"""Frames on their way through a pipeline, with the records that rows came from and what failed.

In a straight part a frame has, beside its own columns, `_record` (the record as it was read) and
`_error` (null, or the stage where it failed, the type and the message). Rows that failed go along,
untouched, to where dead letters are made of them. Nothing is carried that nobody uses: Spark leaves
columns out which a query does not need.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

RECORD: Final = "_record"
ERROR: Final = "_error"
HIDDEN: Final = (RECORD, ERROR)
ENCODED: Final = "_encoded"  # for a moment, in front of a sink
ERROR_TYPE: Final = "struct<stage: string, type: string, message: string>"


@dataclass(frozen=True, slots=True)
class Flow:
    """The frame behind a source or a step."""

    frame: DataFrame
    straight: bool

    @property
    def columns(self) -> list[str]:
        return [name for name in self.frame.columns if name not in HIDDEN]


def error(stage: str, kind: str, message: Column) -> Column:
    return sql.struct(
        sql.lit(stage).alias("stage"), sql.lit(kind).alias("type"), message.alias("message")
    )


def failing(frame: DataFrame, failures: list[tuple[Column, Column]]) -> DataFrame:
    """Rows that are sound so far get the error of the first condition that holds."""
    if not failures:
        return frame
    (condition, found), *others = failures
    chosen = sql.when(condition, found)
    for condition, found in others:
        chosen = chosen.when(condition, found)
    return frame.withColumn(ERROR, sql.when(is_sound(), chosen).otherwise(sql.col(ERROR)))


def is_sound() -> Column:
    return sql.col(ERROR).isNull()


def sound(flow: Flow) -> DataFrame:
    """The rows that did not fail, without what only straight parts have."""
    if not flow.straight:
        return flow.frame
    return flow.frame.where(is_sound()).drop(*HIDDEN)


def failed(flow: Flow, stages: tuple[str, ...]) -> DataFrame:
    """Records that failed at one of these."""
    of_stages = sql.col(ERROR)["stage"].isin(*stages)
    return flow.frame.where(~is_sound() & of_stages).select(*HIDDEN)


def checks(
    stage: str, required: tuple[str, ...], conditions: dict[str, str]
) -> list[tuple[Column, Column]]:
    """Failures of columns that must not be null, and of conditions that must be true."""
    found = [
        (
            sql.col(f"`{name}`").isNull(),
            error(stage, "ValidationError", sql.lit(f"column {name} is null")),
        )
        for name in required
    ]
    found += [
        (
            ~sql.coalesce(sql.expr(condition), sql.lit(False)),  # noqa: FBT003 - a literal
            error(stage, "ValidationError", sql.lit(f"check {name} failed: {condition}")),
        )
        for name, condition in conditions.items()
    ]
    return found
