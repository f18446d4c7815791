"""What can be wrong with a pipeline, for whoever wrote it or runs it."""


class SpecError(ValueError):
    """The file makes no sense; the text says which file, which table, which key, and why."""


class PipelineError(RuntimeError):
    """It cannot go on, and trying again would not help; the text is one line that says why."""


class MissingStreamError(PipelineError):
    """A stream that the pipeline reads or writes is not there."""
