"""What can be wrong with the ETL store and with sinks that are databases."""

from spark.etl.errors import PipelineError


class StoreError(PipelineError):
    """The store cannot be used as it is; the text says what to do."""


class SinkError(PipelineError):
    """The table does not take the rows; the text says why."""


class FencedError(SinkError):
    """Another driver runs the same job into the same table."""


class DisconnectedError(RuntimeError):
    """The database was lost on the way, and nothing of the batch is there: it may be run again."""
