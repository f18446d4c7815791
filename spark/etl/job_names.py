"""What the jobs of a pipeline are called in the store, at the broker and in dead letters."""

from spark.etl.spec import PipelineSpec
from spark.etl.spec_queries import query_shapes


def job_of(spec: PipelineSpec, query: str) -> str:
    """Each query is a job of its own."""
    return f"{spec.name}.{query}"


def jobs_of(spec: PipelineSpec) -> list[str]:
    return [job_of(spec, shape.name) for shape in query_shapes(spec)]
