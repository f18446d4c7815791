"""The broker's own commands: runs the node, looks after it, tells failures in one plain line."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from broker import logs
from broker.access_key_commands import access_key
from broker.cluster_commands import cluster
from broker.config import CONFIG_VARIABLE, SETTINGS, Config
from broker.data_commands import data
from broker.dlq_commands import dlq
from broker.permission_commands import permission
from broker.policy_commands import policy
from broker.scheduled_commands import scheduled
from broker.schema_commands import schema
from broker.settings import ConfigError, FlagError
from broker.startup import StartupError, warn_of_readable_secrets
from broker.stream_commands import stream
from broker.user_commands import user
from broker.version import VERSION
from broker.vhost_commands import vhost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@click.group("leveret", invoke_without_command=True)
@click.version_option(VERSION, prog_name="leveret", message="%(prog)s %(version)s")
@click.pass_context
def leveret(context: click.Context) -> None:
    """Leveret, an AMQP 0-9-1 broker."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for every setting; what its text means is Config's affair."""
    for setting in reversed(SETTINGS):
        help_text = f"{setting.summary}  [{setting.kind.allowed}; default {setting.default_text}]"
        command = click.option(setting.flag, metavar="VALUE", help=help_text)(command)
    return command


@leveret.command()
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    type=click.Path(path_type=Path),
    help="TOML file with settings; flags and LEVERET_* variables win over it.",
)
@_setting_options
def serve(config_path: Path | None, **flags: str | None) -> None:
    """Run a node until it gets SIGTERM or SIGINT."""
    from broker import server  # noqa: PLC0415 - half a second that other commands can do without

    given = {name: text for name, text in flags.items() if text is not None}
    config = Config.load(config_path, os.environ, given)
    logs.setup(level=config.log_level, form=config.log_format)
    warn_of_readable_secrets(config_path, config)
    trio.run(partial(server.serve, config, announce=_announce))


leveret.add_command(cluster)
leveret.add_command(data)
leveret.add_command(dlq)
leveret.add_command(scheduled)
leveret.add_command(schema)
leveret.add_command(permission)
leveret.add_command(policy)
leveret.add_command(stream)
user.add_command(access_key)
leveret.add_command(user)
leveret.add_command(vhost)


def _announce(line: str) -> None:
    """Print the line that tells whoever started the node that it is ready."""
    click.echo(line)
    sys.stdout.flush()


def run(arguments: Sequence[str]) -> int:
    """Carry out a command and return the exit code."""
    try:
        leveret.main(list(arguments), prog_name="leveret", standalone_mode=False)
    except click.UsageError as error:
        return _fail(f"{error.format_message()} (see leveret --help)", EXIT_USAGE)
    except FlagError as error:
        return _fail(str(error), EXIT_USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except click.Abort:
        return EXIT_INTERRUPTED
    except (ConfigError, StartupError) as error:
        return _fail(str(error), EXIT_FAILED)
    except BaseExceptionGroup as group:
        reason = _startup_error(group)
        if reason is None:
            raise
        return _fail(str(reason), EXIT_FAILED)
    return 0


def _startup_error(group: BaseExceptionGroup[BaseException]) -> StartupError | None:
    """Return the reason a node could not start, if that is all a nursery has to report."""
    expected, others = group.split(StartupError)
    if expected is None or others is not None:
        return None
    error: BaseException = expected
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, StartupError) else None


def _fail(message: str, code: int) -> int:
    one_line = " ".join(message.split())
    click.echo(f"leveret: {one_line}", err=True)
    return code
