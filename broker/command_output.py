"""How commands print what they found: JSON, or tables that fit where they go."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.table import Table

PIPED_COLUMNS = 140  # where there is no terminal to tell


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS).print(table)


def plain(text: object) -> Text:
    """A text from elsewhere: to rich its brackets would be markup, to a terminal its escapes."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return Text(shown)


def time_of(ms: int) -> str:
    """A time in milliseconds since the epoch, in UTC."""
    moment = datetime.fromtimestamp(ms / 1000, tz=UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}Z"
