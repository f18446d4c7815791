"""A query into PostgreSQL in a process of its own, which kills itself at the worst moments.

    python -m tests.etl_store.killed_driver AMQP_URL STREAM DATABASE_URL DIRECTORY MOMENT BATCH

`copied`: when rows are in the staging table; `committed`: before Spark has noted the batch.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from spark.etl.postgres_sink import PostgresSink
from spark.etl.store import Offsets
from tests.etl_store.writing import copy_stream
from tests.spark.session import start_session


class KillingSink(PostgresSink):
    moment = ""
    batch = -1
    now = -1

    def write(self, batch_df: DataFrame, batch_id: int, job: str, offsets: Offsets) -> bool:
        self.now = batch_id
        done = super().write(batch_df, batch_id, job, offsets)
        self._at("committed")
        return done

    def _copy(self, frame: DataFrame, staging: str) -> Any:
        copied = super()._copy(frame, staging)
        self._at("copied")
        return copied

    def _at(self, moment: str) -> None:
        if (moment, self.now) == (self.moment, self.batch):
            os.killpg(os.getpgrp(), signal.SIGKILL)  # Python, the JVM and the workers


def main() -> None:
    amqp_url, stream, database, place, moment, batch = sys.argv[1:]
    spark = start_session(Path(place) / "session")
    sink = KillingSink(database, "copied")
    sink.moment, sink.batch = moment, int(batch)
    copy_stream(spark, amqp_url, stream, sink, Path(place) / "checkpoint")


if __name__ == "__main__":
    main()
