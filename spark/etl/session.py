"""The SparkSession of a pipeline, with settings and views of its own in a Spark for many."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark.etl.local_spark import start_local
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
    # To count rows exactly takes a look at each key before it is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # One store for the four tables of a join, and so a quarter of the files of each batch.
    "spark.sql.streaming.join.stateFormatVersion": "3",
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
# What Spark adds to it; it puts its own values in the place of these.
ENVIRONMENT: Final = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
FORMAT: Final = "leveret"
_COMPLETING: Final = threading.Lock()
_SQL: Final = "spark.sql."
_SETTLED: Final = "CANNOT_MODIFY_STATIC_CONFIG"


def open_session(spec: PipelineSpec, spark: SparkSession | None) -> SparkSession:
    """With its own settings and views; others in the same Spark do not see them."""
    own = (spark or start_local(spec)).newSession()
    _complete_environment(own)
    settings = {**SQL_SETTINGS, **spec.spark}
    for name, text in settings.items():
        if name.startswith(_SQL):
            _set(own, name, text)
    return own


def _complete_environment(session: SparkSession) -> None:
    """Of the Python processes of our source. Spark keeps it in one map for all queries, to which
    the thread of each query adds what is missing when it starts. Two at once spoil the map, and
    from then on no task can be sent out (`Task not serializable`). So nothing may be missing."""
    manager = session._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    with _COMPLETING:
        if manager.dataSourceExists(FORMAT):
            environment = manager.lookupDataSource(FORMAT).dataSourceCls().envVars()
            for name, text in ENVIRONMENT.items():
                environment.putIfAbsent(name, text)


def _set(session: SparkSession, name: str, text: str) -> None:
    """But for what is settled when Spark starts. (Spark calls some that it heeds unmodifiable,
    because nobody told it of them, so that asking it first would leave them out.)"""
    try:
        session.conf.set(name, text)
    except AnalysisException as error:
        if error.getCondition() != _SETTLED:
            raise


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
