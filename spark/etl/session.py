"""The SparkSession of a pipeline: one of its own in Spark that runs, or a Spark on this machine."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from spark.etl.spec import PipelineSpec

_STATE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Every query takes these. An expression that fails is null, which `required` and `check` see: with
# ANSI's rules one record that divides by zero would end the pipeline.
SQL_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _STATE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# Of a Spark that is started here. Two tasks at a time need two pieces of state, not 200.
LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}
_SQL: Final = "spark.sql."


def open_session(spec: PipelineSpec, spark: SparkSession | None) -> SparkSession:
    """With its own settings and views; others in the same Spark do not see them."""
    own = (spark or start_local(spec)).newSession()
    settings = {**SQL_SETTINGS, **spec.spark}
    for name, text in settings.items():
        if name.startswith(_SQL) and own.conf.isModifiable(name):
            own.conf.set(name, text)
    return own


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """For the length of a block it is this thread's: only there Spark finds sources in Python."""
    java: Any = session._jvm.SparkSession  # type: ignore[union-attr] # noqa: SLF001
    before = java.getActiveSession()
    java.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            java.setActiveSession(before.get())
        else:
            java.clearActiveSession()


def start_local(spec: PipelineSpec) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(spec.name)
    if "spark.master" not in spec.spark and "MASTER" not in os.environ:
        builder = builder.master("local[*,3]")  # a failed task is tried again
    for name, text in {**LOCAL_SETTINGS, **spec.spark}.items():
        builder = builder.config(name, text)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found
