"""Structured logs on standard error: one event per line, as text or as JSON.

    2026-11-16T02:36:17.123Z info connection.open peer=127.0.0.1:5000 name="worker 1" user=guest

Values come from clients. Whatever they hold, an event stays one line and a field stays one field:
anything that is not plain printable text is quoted and escaped the way JSON does it.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "leveret"
RESERVED_FIELDS = frozenset({"time", "level", "event", "traceback"})

# Enough for any honest name or address; a client may send a name as large as a frame.
VALUE_CHARS_MAX = 512


class Log:
    """Where one part of the broker, or one connection of it, logs its events."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object]) -> None:
        assert not RESERVED_FIELDS & fields.keys()
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        """Return a log whose every event carries these fields too."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, /, **fields: object) -> None:
        """Log an error of ours with its traceback."""
        self._emit(logging.ERROR, event, fields, error)

    def _emit(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        assert not RESERVED_FIELDS & fields.keys()
        exc_info = (type(error), error, error.__traceback__) if error is not None else None
        # Made by hand: Logger.log would walk the stack for a file name that nothing prints.
        record = logging.LogRecord(self._logger.name, level, "", 0, event, None, exc_info)
        record.fields = {**self._fields, **fields}
        self._logger.handle(record)


def get(part: str) -> Log:
    """Return the log of a part of the broker; its name starts the names of its events."""
    return Log(logging.getLogger(f"{ROOT}.{part}"), {})


def setup(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Send events at or above a level to a stream, standard error if none is given."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    # Libraries log through the root logger; of theirs only warnings are the operator's business.
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """Formats an event as `time level part.event key=value …`, a traceback indented below."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_text(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower()} {_event(record)}{fields}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line += "".join(f"\n  | {_escape(text)}" for text in trace)
        return line


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": _event(record),
        }
        event.update((key, _plain(value)) for key, value in _fields(record).items())
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event)


def _event(record: logging.LogRecord) -> str:
    if not hasattr(record, "fields"):
        return record.name
    return f"{record.name.removeprefix(f'{ROOT}.')}.{record.msg}"


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    """Fields of an event; a library's record, which has none, gives its message as one."""
    own: Mapping[str, object] | None = getattr(record, "fields", None)
    return own if own is not None else {"message": record.getMessage()}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str | int | float | bool | None:
    """Return a value as JSON can hold it, cut to its limit."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else text[:VALUE_CHARS_MAX] + "…"


def _text(value: object) -> str:
    plain = _plain(value)
    if not isinstance(plain, str):
        return json.dumps(plain)
    if plain and plain.isprintable() and not any(char in ' "=\\' for char in plain):
        return plain
    return f'"{_escape(plain, quote=True)}"'


def _escape(text: str, *, quote: bool = False) -> str:
    """Escape what could end a line or a quoted value, or reorder what a terminal shows."""
    special = '"\\' if quote else ""
    return "".join(
        char if char.isprintable() and char not in special else json.dumps(char)[1:-1]
        for char in text
    )
