"""Asks before something is lost."""

import sys
from typing import Final

import click

from clients.commands.connecting import CommandError

yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask.")


def ask(question: str, *, yes: bool) -> None:
    """Raises CommandError if the answer is no, UsageError if there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question.removesuffix('?')}: say --yes, as nobody can be asked")
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done")


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
