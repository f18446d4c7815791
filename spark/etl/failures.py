"""Why a query failed, in a line, and whether it is worth trying again."""

import re
from enum import Enum
from typing import Final

LINE_CHARS_MAX: Final = 400
# The last line of a Python traceback, which Spark quotes in the middle of its own words.
_PYTHON: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception)): (.*)$", re.MULTILINE)
_AWAY: Final = re.compile(
    r"\b(ConnectionLostError|DisconnectedError|ConnectionRefusedError|ConnectionResetError|"
    r"BrokenPipeError|OperationalError|TimeoutError|NOT_LEADER|NO_LEADER|UNAVAILABLE|"
    r"Connection refused)\b"
)
_FATAL: Final = re.compile(
    r"\b(OptionError|DataLossError|RowError|SpecError|PipelineError|SinkError|FencedError|"
    r"StoreError|MissingStreamError|AnalysisException|ModuleNotFoundError|SyntaxError|"
    r"STATE_STORE_\w*SCHEMA\w*|STREAMING_STATEFUL_OPERATOR_NOT_MATCH\w*|STAGING_FULL|"
    r"ACCESS_REFUSED|NOT_FOUND|ParseException)\b"
)


class Failure(Enum):
    AWAY = "away"  # broker or database: it is waited for, as long as it takes
    FATAL = "fatal"  # the next attempt would end in the same way
    UNKNOWN = "unknown"  # some attempts, then no more


def classify(error: str) -> Failure:
    if _FATAL.search(error):
        return Failure.FATAL
    return Failure.AWAY if _AWAY.search(error) else Failure.UNKNOWN


def reason(error: str) -> str:
    """The one line that says most: Python's, if there is one, else Spark's first."""
    python = [f"{name.rpartition('.')[2]}: {text}" for name, text in _PYTHON.findall(error)]
    known = [line for line in python if _FATAL.search(line) or _AWAY.search(line)]
    first = next((line for line in error.splitlines() if line.strip()), "no reason given")
    chosen = (known or python or [first])[-1]
    return " ".join(chosen.split())[:LINE_CHARS_MAX]
