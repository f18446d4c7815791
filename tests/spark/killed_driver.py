"""A query in a process of its own, whose driver is killed at the worst moments.

    python -m tests.spark.killed_driver URL SOURCE TARGET DIRECTORY MOMENT BATCH

The moment is `before` or `after` the sink's commit of this batch.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from spark.sink import Messages, StreamWriter
from spark.sink_options import stream_options
from spark.source import StreamQueueSource
from tests.spark.session import start_session
from tests.spark.writing import run_copy


class KillingWriter(StreamWriter):
    def __init__(self, options: Any, directory: Path, moment: str, batch: int) -> None:
        super().__init__(options)
        self._directory, self._moment, self._batch = directory, moment, batch

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        is_time = batchId == self._batch
        if is_time and self._moment == "before":
            self._kill()
        super().commit(messages, batchId)
        if is_time and self._moment == "after":
            self._kill()

    def _kill(self) -> None:
        """The JVM that is the driver; this worker dies with what it says to nobody."""
        os.kill(int((self._directory / "driver").read_text()), signal.SIGKILL)
        os._exit(1)


class KillingSource(StreamQueueSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        del schema, overwrite
        given = dict(self.options)
        directory, moment, batch = (given.pop(name) for name in ("directory", "moment", "batch"))
        return KillingWriter(stream_options(given), Path(directory), moment, int(batch))


def main() -> None:
    url, source, target, place, moment, batch = sys.argv[1:]
    directory = Path(place)
    spark = start_session(directory / "session")
    spark.dataSource.register(KillingSource)
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    (directory / "driver").write_text(str(driver))
    run_copy(
        spark,
        url,
        (source, target),
        directory / "checkpoint",
        form="killing",
        directory=place,
        moment=moment,
        batch=batch,
    )
    spark.stop()


if __name__ == "__main__":
    main()
