"""Format "leveret": what Spark asks for a reader or a writer of stream queues."""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark import sink
from spark.batch_reader import BatchReader
from spark.columns import HEADERS, check_schema, full_schema
from spark.errors import OptionError
from spark.options import SourceOptions, batch_options, stream_options, wants_headers
from spark.stream_reader import StreamReader


class StreamQueueSource(DataSource):
    """spark.dataSource.register(StreamQueueSource), then spark.read.format("leveret")."""

    options: Mapping[str, str]  # type: ignore[assignment]

    @classmethod
    def name(cls) -> str:
        return "leveret"

    def schema(self) -> StructType:
        return full_schema(headers=wants_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = batch_options(self.options)
        _check(schema, options)
        return BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = stream_options(self.options)
        _check(schema, options)
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        return sink.batch_writer(schema, self.options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        return sink.stream_writer(schema, self.options, overwrite=overwrite)


def _check(schema: StructType, options: SourceOptions) -> None:
    check_schema(schema)
    if HEADERS in schema.fieldNames() and options.headers is False:
        raise OptionError("includeHeaders=false, and the schema has the column headers")
