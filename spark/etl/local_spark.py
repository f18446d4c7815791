"""Starts Spark for a pipeline, on this machine unless its settings say otherwise, and soon.

Most of the time to the first micro-batch goes into code that runs once: classes are loaded, plans
made, Python processes started. So the JVM is told to optimise later than it would by itself, its
classes come out of an archive (class_archive.py), and the Python processes are forked
(fork_server.py).
"""

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from spark.etl import class_archive
from spark.etl.spec import PipelineSpec
from spark.fork_keeper import start_fork_server

# The second compiler would take a third of the JVM's time until the first batch is done, for code
# that is hardly run again. What is run for each record gets there within seconds; the default is a
# 25th of these.
_COMPILE_LATER: Final = (
    "-XX:Tier4InvocationThreshold=125000 -XX:Tier4MinInvocationThreshold=15000 "
    "-XX:Tier4CompileThreshold=375000 -XX:Tier4BackEdgeThreshold=1000000"
)
JAVA_OPTIONS: Final = f"-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC {_COMPILE_LATER}"
OPTIONS: Final = "spark.driver.extraJavaOptions"
# Two tasks at a time need two pieces of state, not 200.
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    OPTIONS: JAVA_OPTIONS,
    "spark.python.daemon.module": "spark.worker_daemon",
    # Else each column and expression takes five calls to the JVM more, to say which line made it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
PYTHON: Final = "PYSPARK_PYTHON"


def start_local(spec: PipelineSpec) -> SparkSession:
    """The Spark of this process, if it has one."""
    settings = {**SETTINGS, **spec.spark}
    builder = SparkSession.builder.appName(spec.name)
    if "spark.master" not in settings and "MASTER" not in os.environ:
        builder = builder.master("local[*,3]")  # a failed task is tried again
    if SparkSession.getActiveSession() is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        archive = class_archive.find() if settings[OPTIONS] == JAVA_OPTIONS else None
        if archive is not None:
            settings[OPTIONS] += f" {archive.options()}"
        if PYTHON not in os.environ and "spark.pyspark.python" not in settings:
            os.environ[PYTHON] = _python(settings)
    for name, text in settings.items():
        builder = builder.config(name, text)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def _python(settings: dict[str, str]) -> str:
    """What Spark's Python processes are started with."""
    master = settings.get("spark.master", os.environ.get("MASTER", "local"))
    if not master.startswith("local") or not hasattr(os, "pidfd_open"):
        return sys.executable
    return str(start_fork_server())
