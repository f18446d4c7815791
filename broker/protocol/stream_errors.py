"""What can be wrong with a stream's data or with a request for it, for readers anywhere."""


class StreamError(Exception):
    """Anything that a stream answers instead of records."""


class CorruptChunkError(StreamError):
    """Bytes that are no sound chunk: damaged on disk, or badly made by a peer."""


class OffsetOutOfRangeError(StreamError):
    """The offset asked for was deleted by retention, or is not written yet."""

    def __init__(self, offset: int, first_offset: int, next_offset: int) -> None:
        super().__init__(f"offset {offset} is not within {first_offset} to {next_offset}")
        self.offset = offset
        self.first_offset = first_offset
        self.next_offset = next_offset
