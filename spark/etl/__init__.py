"""Streaming ETL on stream queues: pipelines that are declared, checked, explained and run."""

from spark.etl.errors import PipelineError, SpecError
from spark.etl.pipeline import Pipeline

__all__ = ["Pipeline", "PipelineError", "SpecError"]
