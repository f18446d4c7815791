"""What can be wrong for a Spark query beside what is wrong with a broker."""


class OptionError(ValueError):
    """An option, or a column, that makes no sense; the text says which and what would."""


class DataLossError(RuntimeError):
    """Records that the query was to read are gone; failOnDataLoss=false skips them."""


class RowError(ValueError):
    """A row that cannot be written; the text says why."""


class WriteError(RuntimeError):
    """The broker does not take the rows; the text says what to do."""
