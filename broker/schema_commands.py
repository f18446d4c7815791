"""`leveret schema …`: the schema registry of a running node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table

if TYPE_CHECKING:
    from broker.admin_client import AdminClient

# Of broker.registry.levels, whose import would bring the Avro library into every command.
LEVELS: Final = (
    *("NONE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
_version = click.option("--version", default="latest", show_default=True, help="Which one.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def schema() -> None:
    """List, register, check and delete schemas of a running node."""


@schema.command("list")
@click.option("--prefix", default="", help="Of subjects; all that you may see if left out.")
@click.option("--deleted", is_flag=True, help="Those that are deleted, but not for good, too.")
@_as_json
@node_options
def list_schemas(client: AdminClient, prefix: str, *, deleted: bool, as_json: bool) -> None:
    """Show subjects with their versions."""
    rows: list[dict[str, Any]] = []
    query = {"subjectPrefix": prefix, "deleted": str(deleted).lower()}
    while page := client.at_root("GET", "schemas", offset=str(len(rows)), **query):
        rows += page
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no schemas")
        return
    table = Table("subject", "version", "id", "deleted", "schema")
    for row in rows:
        gone = "yes" if row.get("deleted") else ""
        table.add_row(
            plain(row["subject"]), str(row["version"]), str(row["id"]), gone, plain(_brief(row))
        )
    print_table(table)


def _brief(row: dict[str, Any]) -> str:
    """The name and fields of a record; what else there is in short."""
    value = json.loads(row["schema"])
    if isinstance(value, dict) and isinstance(value.get("fields"), list):
        fields = ", ".join(field["name"] for field in value["fields"])
        return f"{value['name']} ({fields})"
    text = value.get("name", value["type"]) if isinstance(value, dict) else value
    return text if isinstance(text, str) else row["schema"]


@schema.command("show")
@click.argument("subject")
@_version
@click.option("--deleted", is_flag=True, help="Also if it is deleted, but not for good.")
@_as_json
@node_options
def show(client: AdminClient, subject: str, version: str, *, deleted: bool, as_json: bool) -> None:
    """Print a schema of SUBJECT."""
    row = client.at_root(
        "GET", "subjects", subject, "versions", version, deleted=str(deleted).lower()
    )
    if as_json:
        print_json(row)
        return
    click.echo(_legible(json.loads(row["schema"])))


def _legible(value: Any) -> str:
    """JSON with letters as they are, and nothing that steers a terminal."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _body(file: Any, references: tuple[str, ...]) -> dict[str, Any]:
    found = []
    for text in references:
        name, _, where = text.partition("=")
        subject, _, version = where.rpartition(":")
        if not name or not subject or not version.isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--ref")
        found.append({"name": name, "subject": subject, "version": int(version)})
    return {"schema": file.read(), "schemaType": "AVRO", "references": found}


_file = click.argument("file", type=click.File("r", encoding="utf-8"))
_references = click.option(
    "--ref", "references", multiple=True, metavar="NAME=SUBJECT:VERSION", help="A type it uses."
)


@schema.command("register")
@click.argument("subject")
@_file
@_references
@node_options
def register(client: AdminClient, subject: str, file: Any, references: tuple[str, ...]) -> None:
    """Register the Avro schema in FILE (- is the standard input) as a version of SUBJECT."""
    row = client.at_root("POST", "subjects", subject, "versions", body=_body(file, references))
    click.echo(f"subject {subject!r} has it as version {row['version']}, id {row['id']}")


@schema.command("check")
@click.argument("subject")
@_file
@click.option("--version", help="To compare with; by the subject's level if left out.")
@_references
@node_options
def check(
    client: AdminClient, subject: str, file: Any, version: str | None, references: tuple[str, ...]
) -> None:
    """Say whether SUBJECT would take the Avro schema in FILE; the exit code is 1 if not."""
    path = ["compatibility", "subjects", subject, "versions"]
    if version is not None:
        path.append(version)
    answer = client.at_root("POST", *path, body=_body(file, references), verbose="true")
    if not answer["is_compatible"]:
        raise click.ClickException(f"not compatible: {answer['messages'][0]}")
    click.echo("compatible")


@schema.command("config")
@click.argument("subject", required=False)
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Set it.")
@click.option("--unset", is_flag=True, help="Forget it: what is set for all counts again.")
@node_options
def config(client: AdminClient, subject: str | None, level: str | None, *, unset: bool) -> None:
    """Show or set the compatibility level of SUBJECT, or of all that have none of their own."""
    path = ["config"] if subject is None else ["config", subject]
    if unset:
        client.at_root("DELETE", *path)
    elif level is not None:
        client.at_root("PUT", *path, body={"compatibility": level.upper()})
    click.echo(client.at_root("GET", *path, defaultToGlobal="true")["compatibilityLevel"])


@schema.command("delete")
@click.argument("subject")
@click.option("--version", help="Only this one.")
@click.option("--permanent", is_flag=True, help="For good, after it was deleted once.")
@node_options
def delete(client: AdminClient, subject: str, version: str | None, *, permanent: bool) -> None:
    """Delete SUBJECT. Without --permanent its schemas can still be read by their ids."""
    path = ["subjects", subject]
    if version is not None:
        path += ["versions", version]
    gone = client.at_root("DELETE", *path, permanent=str(permanent).lower())
    numbers = ", ".join(map(str, gone if isinstance(gone, list) else [gone]))
    how = "deleted for good" if permanent else "deleted"
    click.echo(f"subject {subject!r}: version {numbers} {how}")
