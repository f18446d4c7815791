"""Entries of batch calls: each has an id, and fails or succeeds by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from broker.sqs.errors import (
    BAD_ENTRY_ID,
    BATCH_EMPTY,
    BATCH_TOO_MANY,
    ENTRY_IDS_TWICE,
    SqsError,
)

if TYPE_CHECKING:
    from broker.sqs.parameters import Parameters

ENTRIES_MAX: Final = 10

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")


def entries_of(parameters: Parameters) -> dict[str, Parameters]:
    """The entries by their ids; SqsError if the whole batch cannot be meant."""
    entries = parameters.structures("Entries")
    if not entries:
        text = "There should be at least one entry in the request."
        raise SqsError(BATCH_EMPTY, text)
    if len(entries) > ENTRIES_MAX:
        text = f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent"
        raise SqsError(BATCH_TOO_MANY, f"{text} {len(entries)}.")
    found: dict[str, Parameters] = {}
    for entry in entries:
        name = entry.text("Id")
        if not _ID.match(name):
            text = "A batch entry id can only contain alphanumeric characters, hyphens and "
            raise SqsError(BAD_ENTRY_ID, f"{text}underscores. It can be at most 80 letters long.")
        if name in found:
            raise SqsError(ENTRY_IDS_TWICE, f"Id {name} repeated.")
        found[name] = entry
    return found


class Outcome:
    """What became of the entries, in their order."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, Any] | SqsError] = {}

    def succeeded(self, entry: str, result: dict[str, Any] | None = None) -> None:
        self._results[entry] = result or {}

    def failed(self, entry: str, error: SqsError) -> None:
        self._results[entry] = error

    def result(self, entries: dict[str, Parameters]) -> dict[str, Any]:
        successful: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for entry in entries:
            result = self._results[entry]
            if isinstance(result, SqsError):
                failed.append(
                    {
                        "Id": entry,
                        "SenderFault": result.is_senders_fault,
                        "Code": result.kind.code,
                        "Message": result.text,
                    }
                )
            else:
                successful.append({"Id": entry, **result})
        both = {"Successful": successful, "Failed": failed}
        return {name: rows for name, rows in both.items() if rows}  # as AWS does
