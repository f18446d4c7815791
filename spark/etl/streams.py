"""The streams that a pipeline needs: looked for before it starts, and declared where it may."""

from clients import blocking, streams
from spark.etl.dead_letters import dlq_of
from spark.etl.errors import MissingStreamError
from spark.etl.spec import PipelineSpec, StreamSink
from spark.etl.spec_graph import upstream
from spark.etl.spec_queries import query_shapes


def letter_topics(spec: PipelineSpec) -> list[str]:
    """Of sources whose records may fail, at any stage."""
    fronts = [each.front for shape in query_shapes(spec) for each in shape.letters]
    names = {name for front in fronts for name in upstream(spec, front) if name in spec.sources}
    return sorted({topic for name in names for topic in spec.sources[name].topics})


def prepare(spec: PipelineSpec) -> None:
    """Raises MissingStreamError; StreamError and AMQPClientError if the broker is away."""
    with streams.connect(spec.broker, name=f"etl {spec.name}") as client:
        known = client.streams()
    missing: dict[str, int] = {}
    for source in spec.sources.values():
        for topic in source.topics:
            if topic not in known:
                raise MissingStreamError(f"[sources.{source.name}]: there is no stream {topic!r}")
    for topic in letter_topics(spec):
        missing[dlq_of(topic)] = 1
    for sink in spec.sinks.values():
        if isinstance(sink, StreamSink) and sink.topic not in known:
            if sink.partitions is None:
                raise MissingStreamError(
                    f"[[sinks]] {sink.name!r}: there is no stream {sink.topic!r}; with partitions "
                    "= N it would be declared"
                )
            missing[sink.topic] = sink.partitions
    _declare(spec, {name: count for name, count in missing.items() if name not in known})


def _declare(spec: PipelineSpec, wanted: dict[str, int]) -> None:
    if not wanted:
        return
    with blocking.connect(spec.broker) as connection, connection.channel() as channel:
        for name, partitions in wanted.items():
            channel.declare_queue(
                name, arguments={"x-queue-type": "stream", "x-partitions": partitions}
            )
