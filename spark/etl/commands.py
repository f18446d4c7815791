"""`leveret etl run|validate|explain|demo`; those for operators are in operations_commands."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from spark.etl.demo import demo
from spark.etl.errors import PipelineError, SpecError
from spark.etl.explain import explain_lines
from spark.etl.operations_commands import dlq, forget, status
from spark.etl.pipeline import Pipeline
from spark.etl.spec_reading import read_file
from spark.etl.stopping import stop_on_signals
from spark.etl.terminal import terminal_of

T = TypeVar("T")

FILE: Final = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


def in_a_line(work: Callable[[], T]) -> T:
    """Errors of a pipeline are told in one line, and the exit code is 1."""
    try:
        return work()
    except (SpecError, PipelineError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@FILE
@click.option("--once", is_flag=True, help="Read what is there now, in batches, and end.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for everything that happens.")
def run(file: Path, *, once: bool, as_json: bool) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM, which let the batch under way come to its end."""
    pipeline = in_a_line(lambda: Pipeline.from_toml(file))
    stop = threading.Event()
    with terminal_of(pipeline.spec.name, as_json=as_json) as listener:
        session = in_a_line(pipeline.session)
        stop_on_signals(stop)
        in_a_line(lambda: pipeline.run(session, once=once, stop=stop, listener=listener))


@click.command()
@FILE
@click.option("--quick", is_flag=True, help="The file only, without Spark: no types, no SQL.")
def validate(file: Path, *, quick: bool) -> None:
    """Check a pipeline without running it."""
    spec = in_a_line(lambda: read_file(file))
    if not quick:
        in_a_line(Pipeline(spec).validate)
    counts = (len(spec.sources), len(spec.steps), len(spec.sinks))
    words = (_count(*pair) for pair in zip(counts, ("source", "step", "sink"), strict=True))
    click.echo(f"{file}: pipeline {spec.name} is fine: {', '.join(words)}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@click.command()
@FILE
@click.option("--plan/--no-plan", default=True, help="With Spark's own plan of each query.")
def explain(file: Path, *, plan: bool) -> None:
    """Show what a pipeline does, without running it: schemas, state, guarantees, Spark's plan."""
    pipeline = in_a_line(lambda: Pipeline.from_toml(file))
    for line in in_a_line(lambda: explain_lines(pipeline, plan=plan)):
        click.echo(line)


COMMANDS: Final = {each.name: each for each in (run, validate, explain, demo, dlq, status, forget)}
