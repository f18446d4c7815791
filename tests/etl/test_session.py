"""The settings of a pipeline's session: those that Spark heeds without knowing them, too."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from spark.etl import Pipeline
from spark.etl.session import ENVIRONMENT, FORMAT, SQL_SETTINGS, open_session
from spark.etl.stream_sink import HEADERS_TYPE, no_headers
from tests.etl.scene import PipelineScene


def a_pipeline(directory: Path, **settings: str) -> Pipeline:
    values = {
        "pipeline": {"name": "test", "checkpoint": str(directory)},
        "sources": {"orders": {"topic": "orders", "schema": "id bigint"}},
        "sinks": [{"kind": "memory", "input": "orders"}],
        "spark": settings,
    }
    return Pipeline.from_dict(values)


def test_all_settings_of_pipelines_are_set_in_their_session_and_in_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    own = open_session(a_pipeline(tmp_path).spec, spark)
    assert {name: own.conf.get(name) for name in SQL_SETTINGS} == SQL_SETTINGS
    assert spark.conf.get("spark.sql.ansi.enabled") == before


def test_settings_of_the_file_come_before_ours(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.streaming.join.stateFormatVersion"
    own = open_session(a_pipeline(tmp_path, **{name: "2"}).spec, spark)
    assert own.conf.get(name) == "2"


def test_what_is_settled_when_spark_starts_is_left_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = "spark.sql.warehouse.dir"
    before = spark.conf.get(name)
    own = open_session(a_pipeline(tmp_path, **{name: "elsewhere"}).spec, spark)
    assert own.conf.get(name) == before


def test_files_of_a_checkpoint_are_written_without_processes_beside(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's default for files on this machine renames each of them by way of a command."""
    own = open_session(a_pipeline(tmp_path).spec, spark)
    java: Any = own._jvm
    files = java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    settings = own._jsparkSession.sessionState().newHadoopConf()
    made = files.create(java.org.apache.hadoop.fs.Path(str(tmp_path)), settings)
    assert made.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


def test_results_have_a_list_of_headers_that_is_empty_and_never_null(spark: SparkSession) -> None:
    null = sql.lit(None).cast(HEADERS_TYPE)
    frame = spark.range(3).select(no_headers().alias("headers"), null.alias("null"))
    assert frame.schema["headers"].dataType == frame.schema["null"].dataType
    assert [row.headers for row in frame.collect()] == [[], [], []]


def test_queries_that_start_at_once_find_the_environment_of_their_processes_complete(
    etl: PipelineScene,
) -> None:
    """Spark adds to it without a lock, so that there must be nothing left to add."""
    orders = etl.declare()
    etl.fill(orders, [{"id": number} for number in range(10)])
    sinks = [
        {"kind": "stream", "name": name, "input": "orders", "topic": etl.target()}
        for name in ("one", "two")
    ]
    pipeline = etl.pipeline({"orders": {"topic": orders, "schema": "id bigint"}}, sinks)
    assert etl.spark is not None
    own = open_session(pipeline.spec, etl.spark)
    manager = own._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(FORMAT).dataSourceCls().envVars()
    before = set(environment)
    assert before >= set(ENVIRONMENT)
    etl.run(pipeline)
    assert set(environment) == before
