"""A pipeline as programs use it: read it, check it, explain it, run it."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark.etl.checkpoints import check_shape, locked, shape_of
from spark.etl.class_archive import ArchiveMaker
from spark.etl.events import Event, Listener
from spark.etl.local_spark import start_local
from spark.etl.operations import Operations
from spark.etl.plan import Planner
from spark.etl.runner import Runner
from spark.etl.session import active, open_session
from spark.etl.spec import PipelineSpec
from spark.etl.spec_reading import read_file, read_spec


def _silent(event: Event) -> None:
    del event


class Pipeline:
    """Pipeline.from_toml("pipeline.toml").run()"""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec

    @classmethod
    def from_toml(cls, path: str | Path) -> "Pipeline":
        """Raises SpecError."""
        return cls(read_file(Path(path)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], directory: str | Path = ".") -> "Pipeline":
        """The same tables as in a file. Raises SpecError."""
        return cls(read_spec(values, "pipeline", Path(directory).resolve()))

    def session(self) -> SparkSession:
        """A Spark on this machine, if there is none yet."""
        return start_local(self.spec)

    def plan(self, spark: SparkSession | None = None) -> Planner:
        return Planner(self.spec, open_session(self.spec, spark))

    def validate(self, spark: SparkSession | None = None) -> None:
        """Also what only Spark can tell: expressions, columns and types. Raises SpecError."""
        self.plan(spark).queries()

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        listener: Listener = _silent,
    ) -> None:
        """Until `stop` is set; with `once` until all that is there was read.

        Raises SpecError and PipelineError; then no query runs.
        """
        planner = self.plan(spark)
        queries = planner.queries()
        shapes = {each.name: shape_of(self.spec, planner, each) for each in queries}
        with locked(self.spec), active(planner.spark):
            for name, shape in shapes.items():
                check_shape(self.spec, name, shape)
            planner.register_schemas()
            operations = Operations(self.spec)
            archive = ArchiveMaker(planner.spark._jvm, shapes)  # noqa: SLF001

            def listen(event: Event) -> None:
                listener(event)
                if not once:
                    archive.saw(event)

            try:
                runner = Runner(self.spec, queries, operations, listen, once=once)
                runner.run(stop if stop is not None else threading.Event())
            finally:
                archive.stop()
                operations.close()
