"""Rows of a micro-batch into a PostgreSQL table, each once: results and offsets together."""

from typing import Literal

from pyspark.sql import DataFrame

from spark.etl.store import Offsets

Mode = Literal["append", "upsert"]


class PostgresSink:
    """To be called inside foreachBatch. One for each query; `close` it in the end."""

    def __init__(
        self,
        url: str,
        table: str,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        *,
        order_by: str = "",
    ) -> None:
        raise NotImplementedError

    def write(self, batch_df: DataFrame, batch_id: int, job: str, offsets: Offsets) -> bool:
        """False if the batch was there before. Raises SinkError, or DisconnectedError after which
        the batch may be written again."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
