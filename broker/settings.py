"""Kinds of setting: how a value is read from text, what is allowed, and how that is said."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class ConfigError(ValueError):
    """A setting that cannot be used, told in one sentence."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class FlagError(ConfigError):
    """The same, of a flag: a mistake in how the command was called."""


def not_allowed(source: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(source, f"{value!r} is not allowed; it must be {allowed}")


class WrongValueError(ValueError):
    """A value that is not allowed, and the whole sentence to say about it."""


class Kind(Protocol):
    """What values a setting may have. Both methods raise ValueError for any other."""

    @property
    def allowed(self) -> str:
        """The rest of the sentence "it must be …"."""

    def from_text(self, text: str) -> object:
        """Read the value of a variable or flag."""

    def check(self, value: object) -> object:
        """Take the value of a TOML key."""


@dataclass(frozen=True)
class WholeNumber:
    """An integer within limits, both included."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def from_text(self, text: str) -> int:
        return self.check(int(text))

    def check(self, value: object) -> int:
        # bool is an int to Python, not to a reader of TOML.
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        if not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True)
class Seconds:
    """A length of time within limits, both included."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"a number of seconds from {self.low:g} to {self.high:g}"

    def from_text(self, text: str) -> float:
        return self.check(float(text))

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not self.low <= value <= self.high:
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class Memory:
    """An amount of memory: a share of what there is, or a number of bytes."""

    allowed: str = "a share of memory from 0.01 to 1.0, or a number of bytes from 33554432 up"

    def from_text(self, text: str) -> float | int:
        return self.check(int(text) if text.isdigit() else float(text))

    def check(self, value: object) -> float | int:
        if isinstance(value, float) and 0.01 <= value <= 1.0:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            if value == 1:
                return 1.0
            if value >= 32 * 2**20:  # less than the broker itself takes
                return value
        raise ValueError


@dataclass(frozen=True)
class Text:
    """A text that is not empty, perhaps of a certain form."""

    pattern: str = r".+"
    described: str = "that is not empty"

    @property
    def allowed(self) -> str:
        return f"a text {self.described}"

    def from_text(self, text: str) -> str:
        return self.check(text)

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise ValueError
        return value


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self._words = words

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self._words)

    def from_text(self, text: str) -> str:
        return self.check(text)

    def check(self, value: object) -> str:
        if not isinstance(value, str) or value not in self._words:
            raise ValueError
        return value


class Choices:
    """Some of a few words, in an order that may matter: a list in TOML, with commas in text."""

    def __init__(self, *words: str) -> None:
        self._words = words

    @property
    def allowed(self) -> str:
        return f"a list of at least one of {', '.join(self._words)}, none twice"

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.check([word.strip() for word in text.split(",")])

    def check(self, value: object) -> tuple[str, ...]:
        words = Names(at_least=1).check(value)
        if not set(words) <= set(self._words):
            raise ValueError
        return words


@dataclass(frozen=True)
class Directory:
    """A path; whether it can be used shows at start."""

    allowed: str = "the path of a directory"

    def from_text(self, text: str) -> Path:
        return self.check(text)

    def check(self, value: object) -> Path:
        if isinstance(value, str) and value and "\0" not in value:
            return Path(value)
        if isinstance(value, Path):
            return value
        raise ValueError


@dataclass(frozen=True)
class File:
    """The path of a file, or nothing; whether it can be used shows where it is read."""

    allowed: str = "the path of a file"

    def from_text(self, text: str) -> Path | None:
        return self.check(text or None)

    def check(self, value: object) -> Path | None:
        if value is None or isinstance(value, Path):
            return value
        if isinstance(value, str) and value and "\0" not in value:
            return Path(value)
        raise ValueError


@dataclass(frozen=True)
class OptionalText:
    """A text without blanks, which may be empty."""

    allowed: str = "a text without blanks"

    def from_text(self, text: str) -> str:
        return self.check(text)

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"\S*", value):
            raise ValueError
        return value


@dataclass(frozen=True)
class Names:
    """Names without repetition: a list in TOML, separated by commas in text."""

    at_least: int

    @property
    def allowed(self) -> str:
        if self.at_least:
            return f"a list of at least {self.at_least} name(s), none twice"
        return "a list of names, none twice"

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.check([name.strip() for name in text.split(",")] if text else [])

    def check(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or len(value) < self.at_least:
            raise ValueError
        if not all(isinstance(name, str) and name for name in value):
            raise ValueError
        if len(set(value)) != len(value):
            raise ValueError
        return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of the configuration that file, environment and command line can set."""

    name: str
    kind: Kind
    summary: str
    default_text: str
    variable: str
    flag: str

    @classmethod
    def from_field(cls, field: dataclasses.Field[Any], variable_prefix: str) -> Setting:
        return cls(
            name=field.name,
            kind=field.metadata["kind"],
            summary=field.metadata["summary"],
            default_text=field.metadata.get("default_text") or _as_text(field.default),
            variable=variable_prefix + field.name.upper(),
            flag="--" + field.name.replace("_", "-"),
        )


def _as_text(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)
