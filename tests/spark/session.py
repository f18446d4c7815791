"""A SparkSession that starts quickly, in this process or in one that a test may kill."""

import os
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from spark.fork_keeper import start_fork_server

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": "{directory}/warehouse",
    "spark.local.dir": "{directory}/local",
}


def start_session(directory: Path) -> SparkSession:
    """One for each process; failed tasks are tried again, up to three times in all.

    The format is not registered: Spark finds it by itself. Python processes are forked as those of
    pipelines are; a cluster of Spark's and the command start Python itself.
    """
    os.environ["PYSPARK_PYTHON"] = str(start_fork_server())
    os.environ["SPARK_HOME"] = str(spark_home(directory))
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    for name, text in SETTINGS.items():
        builder = builder.config(name, text.format(directory=directory))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_home(directory: Path) -> Path:
    """PySpark's own but for its zipped copy of itself, which costs each worker half a second."""
    home = directory / "home"
    home.mkdir(parents=True, exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        link = home / entry.name
        if entry.name != "python" and not link.exists():
            link.symlink_to(entry)
    return home
