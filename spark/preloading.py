"""What Spark's Python processes import, imported before they are forked.

PySpark, pyarrow and pandas take a process a second or two, and Spark has each worker collect
garbage after each task: a walk over all that was imported, which with small batches takes longer
than the task. Done before a fork the one is paid for once, and the other leaves it out.
"""

import gc
import importlib
import warnings
from contextlib import suppress
from typing import Final

# No module that is started with `python -m`: that one is run, and must not be there before.
IMPORTED: Final = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyspark.worker",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "fastavro",
    "spark.batch_reader",
    "spark.sink",
    "spark.source",
    "spark.stream_reader",
    "spark.etl.lookups",
)


def preload() -> None:
    """What is missing here is missing for a task that needs it, and is told there."""
    for name in IMPORTED:
        with suppress(ImportError), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
