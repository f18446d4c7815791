"""Stream queues as a data source and sink of Spark: format "leveret", batch and streaming."""

from spark.source import StreamQueueSource

__all__ = ["StreamQueueSource"]
