"""Parameters of a call, whichever protocol they came in: read by name, with type and bounds.

The query protocol knows texts only, so that a number may come as one; the JSON protocol has both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.sqs.errors import BAD_REQUEST, SqsError, bad_parameter, missing

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGITS_MAX: Final = 19


class Parameters:
    """One structure of a request: the call itself, or an entry of a batch."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        """Which must be there."""
        value = self.optional_text(name)
        if value is None:
            raise missing(name)
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise _wrong_type(name, "a text")
        return value

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self.optional_number(name, least=least, most=most)
        return default if value is None else value

    def optional_number(self, name: str, *, least: int, most: int) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        number = whole(value)
        if number is None or not least <= number <= most:
            raise bad_parameter(name, value, f"Must be between {least} and {most}, if provided.")
        return number

    def texts(self, name: str) -> list[str]:
        """A list of texts; none given is an empty one."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _wrong_type(name, "a list of texts")
        return value

    def table(self, name: str) -> dict[str, Any]:
        """Values by name; none given is an empty table."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _wrong_type(name, "a map")
        return value

    def text_table(self, name: str) -> dict[str, str]:
        value = self.table(name)
        if not all(isinstance(item, str) for item in value.values()):
            raise _wrong_type(name, "a map of texts")
        return value

    def structures(self, name: str) -> list[Parameters]:
        """A list of structures, which must be there."""
        value = self.values.get(name)
        if value is None:
            raise missing(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise _wrong_type(name, "a list of structures")
        return [Parameters(item) for item in value]


def whole(value: object) -> int | None:
    """A number, or the text of one; None for anything else."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        fits = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
        return int(value) if fits else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _wrong_type(name: str, wanted: str) -> SqsError:
    return SqsError(BAD_REQUEST, f"{name} is not {wanted}")
