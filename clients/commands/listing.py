"""Lists out of a node's management API: chosen, put in order, and shown as a table or as JSON."""

import functools
import http.client
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import click
from rich.table import Table

from broker.admin_client import AdminClient, AdminError
from broker.command_output import plain, print_json, print_table
from clients.commands.connecting import CommandError

Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, Callable[[Row], object]]  # heading → what stands under it

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which rows, and in which order."""

    vhost: str | None
    name_filter: re.Pattern[str] | None
    sort: str
    reverse: bool
    limit: int | None

    def fetch(self, client: AdminClient, what: str, fields: Iterable[str]) -> list[Row]:
        where = [what] if self.vhost is None else [what, self.vhost]
        found: list[Row] = client.get_page(*where, columns=",".join(fields))
        return found

    def choose(self, rows: list[Row], by: Mapping[str, Callable[[Row], Any]]) -> list[Row]:
        """Those whose name fits, in order; ties in the order of their names."""
        pattern = self.name_filter
        if pattern is not None:
            rows = [row for row in rows if pattern.search(row["name"])]
        rows.sort(key=lambda row: (row["vhost"], row["name"]))
        if self.sort != "name":
            rows.sort(key=by[self.sort], reverse=self.reverse)
        elif self.reverse:
            rows.reverse()
        return rows[: self.limit]


def listing_options(*sorts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of lists; it is called with a `listing`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [
            click.option("--vhost", help="A virtual host; all that you may see if left out."),
            click.option("--filter", "name_filter", metavar="REGEX", help="Only names that fit."),
            click.option(
                "--sort",
                type=click.Choice(["name", *sorts]),
                default="name",
                show_default=True,
                help="What to sort by.",
            ),
            click.option("--reverse", is_flag=True, help="The largest first."),
            click.option("--limit", type=click.IntRange(min=1), help="How many at most."),
            json_option,
        ]

        @functools.wraps(command)
        def with_listing(
            *,
            vhost: str | None,
            name_filter: str | None,
            sort: str,
            reverse: bool,
            limit: int | None,
            **arguments: Any,
        ) -> None:
            pattern = None if name_filter is None else compile_filter(name_filter)
            listing = Listing(
                vhost=vhost, name_filter=pattern, sort=sort, reverse=reverse, limit=limit
            )
            command(listing=listing, **arguments)

        wrapped: Callable[..., None] = with_listing
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def describe_with(client: AdminClient, bindings: tuple[str, ...], *path: str) -> Row:
    """All that is known of one thing, and its bindings. Raises CommandError if it is not there."""
    try:
        row: Row = client.get(*path)
        return {**row, "bindings": client.get(*path, *bindings)}
    except AdminError as error:
        if error.status != http.client.NOT_FOUND:
            raise
        what, vhost, name = path
        text = f"no {what.removesuffix('s')} {name!r} in vhost {vhost!r}"
        raise CommandError(f"{text}; `leveret {what}` shows what there is") from None


def compile_filter(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--filter") from None


def show(rows: list[Row], columns: Columns, *, as_json: bool, none: str) -> None:
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(none)
    else:
        table = Table(*columns)
        for row in rows:
            table.add_row(*(plain(cell(row)) for cell in columns.values()))
        print_table(table)


def show_one(row: Row, fields: Iterable[str]) -> None:
    """What there is to say of one thing."""
    table = Table(show_header=False)
    for name in fields:
        value = arguments_text(row) if name == "arguments" else row.get(name)
        if value not in (None, "", [], {}):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            table.add_row(plain(name.replace("_", " ")), plain(shown))
    print_table(table)


def features(row: Row) -> str:
    """How long it stays, in words."""
    words = ["durable" if row["durable"] else "transient"]
    words += [name.replace("_", "-") for name in ("auto_delete", "exclusive") if row.get(name)]
    words += ["internal"] if row.get("internal") else []
    return ", ".join(words)


def arguments_text(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(row["arguments"].items()))


def vhost_column(listing: Listing) -> Columns:
    return {"vhost": lambda row: row["vhost"]} if listing.vhost is None else {}
