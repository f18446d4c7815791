"""`leveret data …`: looks into a stopped node's data directory, and accepts what it has lost."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import cbor2
import click
from rich.table import Table

from broker.command_output import print_table
from broker.journal import DEFINITIONS_UID
from broker.startup import StartupError
from queues.storage.check import DirectoryReport, check_directory
from queues.storage.disk import RealDisk
from queues.storage.errors import StorageError
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024

Names = dict[bytes, str]


@click.group()
def data() -> None:
    """Look into the data directory of a node that is not running."""


def _directory_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return _data_dir_option(command)


def _data_dir_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--data-dir",
        default="leveret-data",
        show_default=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="The directory.",
    )(command)


@data.command()
@_directory_options
def check(data_dir: Path, *, as_json: bool) -> None:
    """Verify every byte that counts. Exits with 1 if anything is damaged."""
    report, names = _look(data_dir)
    damaged = [group for group in report.groups if group.damaged]
    if as_json:
        _print_json(report, names)
    else:
        for finding in report.findings:
            click.echo(f"corrupt: {finding.file} at byte {finding.offset}: {finding.what}")
        for group in damaged:
            click.echo(f"damaged: {names.get(group.uuid, group.uuid.hex())}: {group.damaged}")
        if report.lost is not None:
            click.echo(f"lost: logs that nothing names any more: {report.lost}")
        if report.torn is not None:
            click.echo(
                f"torn: {report.torn} (a crash cut a write short; nothing confirmed is lost)"
            )
        click.echo(
            f"{len(report.files)} files, {report.records} records, {len(report.groups)} logs: "
            + ("sound" if report.sound else f"{len(damaged)} damaged")
        )
    if not report.sound:
        sys.exit(1)


@data.command()
@_directory_options
def stats(data_dir: Path, *, as_json: bool) -> None:
    """Show files and logs with their sizes."""
    report, names = _look(data_dir)
    if as_json:
        _print_json(report, names)
        return
    files = Table("file", "kind", "format", "MiB", "live MiB", title="files", title_justify="left")
    for file in report.files:
        version = "-" if file.version is None else str(file.version)
        size, live = f"{file.size_bytes / MIB:.1f}", f"{file.live_bytes / MIB:.1f}"
        files.add_row(file.name, file.kind, version, size, live)
    print_table(files)
    logs = Table("log", "term", "entries", "last", "checkpoint", "MiB", "state", title="logs")
    for group in sorted(report.groups, key=lambda group: -group.bytes):
        logs.add_row(
            names.get(group.uuid, f"unknown {group.uuid.hex()}"),
            str(group.term),
            str(group.entries),
            str(group.last_index),
            "-" if group.snapshot_index is None else str(group.snapshot_index),
            f"{group.bytes / MIB:.1f}",
            group.damaged or "ok",
        )
    print_table(logs)


@data.command("accept-loss")
@_data_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept_loss(data_dir: Path, *, yes: bool) -> None:
    """Accept that logs are lost of which not even the name is known.

    Until then a queue or stream without a log is refused, since its messages may be among what is
    lost. Afterwards it counts as new and empty. What is called damaged stays so.
    """
    report, _ = _look(data_dir)
    if report.lost is None:
        click.echo("no logs are lost")
        return
    click.echo(f"lost: {report.lost}")
    if not yes:
        click.confirm("Serve queues and streams without a log as empty ones?", abort=True)
    events = StoreEvents(durable=_nothing, failed=_raise, full=_nothing)
    options = StoreOptions(free_bytes_min=0)
    try:
        store = LogStore.open(
            RealDisk(data_dir), options, events, new_store_id=lambda: b"", threaded=False
        )
        store.accept_loss()
        store.close()
    except (StorageError, OSError) as error:
        raise StartupError(f"cannot use {data_dir}: {error}") from error
    click.echo("accepted")


def _nothing(_: object) -> None:
    """Nobody waits for it."""


def _raise(error: BaseException) -> None:
    raise error


def _look(data_dir: Path) -> tuple[DirectoryReport, Names]:
    try:
        report = check_directory(RealDisk(data_dir), payloads_of=DEFINITIONS_UID)
    except (StorageError, OSError) as error:
        raise StartupError(f"cannot read {data_dir}: {error}") from error
    return report, _names(report.payloads)


def _names(definitions: list[bytes]) -> Names:
    """What each log is for, from the definitions."""
    names = {DEFINITIONS_UID: "definitions"}
    for payload in definitions:
        if payload:
            _, *changes = cbor2.loads(payload)
            for change in changes:
                if change[0] == "queue":
                    _, vhost, name, uid, *_ = change
                    names[uid] = f"queue {name!r} in vhost {vhost!r}"
    return names


def _print_json(report: DirectoryReport, names: Names) -> None:
    groups = [
        {**asdict(group), "uuid": group.uuid.hex(), "name": names.get(group.uuid)}
        for group in report.groups
    ]
    findings = [
        {"file": finding.file, "offset": finding.offset, "what": finding.what}
        for finding in report.findings
    ]
    click.echo(
        json.dumps(
            {
                "sound": report.sound,
                "records": report.records,
                "torn": report.torn,
                "lost": report.lost,
                "findings": findings,
                "files": [asdict(file) for file in report.files],
                "logs": groups,
            },
            indent=2,
        )
    )
