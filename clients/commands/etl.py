"""`leveret etl`: commands of the Spark package, which is asked for only when one is used."""

import importlib
from typing import Any, Final

import click

# Clients do not import Spark, and not everybody has it: it is looked up by its name.
MODULE: Final = "spark.etl.commands"


class SparkCommands(click.Group):
    """Its commands are those that the module has."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return _commands().get(cmd_name)


def _commands() -> dict[str, click.Command]:
    try:
        module: Any = importlib.import_module(MODULE)
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"it needs Spark, and {error.name} is not installed: pip install 'leveret[spark]'"
        ) from error
    found: dict[str, click.Command] = module.COMMANDS
    return found


@click.group(cls=SparkCommands)
def etl() -> None:
    """Run streaming ETL pipelines on stream queues, with Spark."""
