"""`leveret etl dlq …` and `leveret etl status`: what failed, and how jobs do.

The group `leveret etl` takes them: `etl.add_command(dlq)`, `etl.add_command(status)`.
"""

import click


@click.group()
def dlq() -> None:
    """List, show and replay records that jobs could not take."""


@click.command()
def status() -> None:
    """Show how jobs do."""
