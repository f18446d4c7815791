"""What the jobs of a pipeline are called in the store, at the broker and in dead letters."""

from spark.etl.spec import PipelineSpec
from spark.etl.spec_queries import LETTERS_NAME


def job_of(spec: PipelineSpec, query: str) -> str:
    """Each query is a job of its own."""
    return f"{spec.name}.{query}"


def jobs_of(spec: PipelineSpec) -> list[str]:
    """All that it may have: whether dead letters need a query depends on its past, too."""
    return [job_of(spec, query) for query in (*spec.sinks, LETTERS_NAME)]
