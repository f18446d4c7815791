"""`leveret etl demo`: events that are made up flow through windows, joins and dead letters."""

import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from clients.amqp_url import Endpoint, Target
from clients.commands.connecting import amqp_options
from spark.etl.demo_run import Demo, Outcome, report, sums
from spark.etl.errors import PipelineError, SpecError
from spark.etl.operations_options import stream_url
from spark.etl.stopping import stop_on_signals
from spark.etl.terminal import terminal_of
from spark.lifelines import tied

RATE_MAX: Final = 1_000_000
SECONDS_MAX: Final = 7 * 86_400
PROBE_S: Final = 2.0
READY: Final = "leveret ready amqp="


@click.command()
@click.option("--seconds", default=60, type=click.IntRange(1, SECONDS_MAX), show_default=True)
@click.option(
    "--rate",
    default=20_000,
    type=click.IntRange(1, RATE_MAX),
    show_default=True,
    help="Events in a second: impressions, clicks and orders together.",
)
@click.option("--http", help="The broker's HTTP address, where the demo's metrics are to be seen.")
@click.option(
    "--report",
    "file",
    default="etl-demo.html",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default=True,
    help="Where the report goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Lines of JSON.")
@amqp_options
def demo(
    *, seconds: int, rate: int, target: Target, http: str | None, file: Path, as_json: bool
) -> None:
    """Make up a shop's events and run a pipeline on them: joins, windows, a table, dead letters.

    It uses streams whose names begin with `etl-demo.`, and empties them first. If no broker answers
    at the address, one is started for the time of the demo. Ctrl-C ends it early.
    """
    head = {} if http is None else {"http": http}
    with tempfile.TemporaryDirectory(prefix="leveret-etl-demo-") as place:
        directory = Path(place)
        with broker_at(target, directory) as address:
            run, stop = Demo(address, directory, rate, seconds), threading.Event()
            stop_on_signals(stop)
            try:
                with terminal_of("demo", as_json=as_json) as listener:
                    outcome = run.run(listener, stop, **head)
            except (SpecError, PipelineError) as error:
                raise click.ClickException(str(error)) from error
    file.write_text(report(outcome, rate), encoding="utf-8")
    if not as_json:
        for line in told(outcome, file):
            click.echo(line)


def told(outcome: Outcome, file: Path) -> Iterator[str]:
    recorder = outcome.recorder
    yield (
        f"{outcome.made:,} events made, {sum(recorder.read.values()):,} records read in "
        f"{recorder.batches:,} batches, {outcome.seconds:.0f} s"
    )
    yield f"{outcome.bad:,} orders were bad, {outcome.letters:,} dead letters"
    largest = sums(outcome.revenue, "country", "orders", "euros")[:3]
    words = [f"{name} {orders} ({euros} €)" for name, orders, euros in largest]
    yield f"most orders: {', '.join(words)}"
    yield f"the report is {file}"


@contextmanager
def broker_at(target: Target, directory: Path) -> Iterator[str]:
    """The broker that is there, or one that lives as long as this block."""
    if any(_answers(each) for each in target.endpoints):
        yield stream_url(target)
        return
    click.echo(f"no broker at {target!r}: one is started for the demo", err=True)
    command = tied("broker", "serve", "--amqp-port", "0", "--http-port", "0")
    command += ["--data-dir", str(directory / "broker"), "--log-level", "error"]
    process = subprocess.Popen(  # noqa: S603 - our own
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C at the terminal is for the demo, which still needs it
    )
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if READY in line), "")
        if not line:
            raise click.ClickException("the broker did not start")
        place = line.partition(READY)[2].split()[0]
        yield f"amqp://guest:guest@{place}/%2F"
    finally:
        process.terminate()
        process.wait()


def _answers(endpoint: Endpoint) -> bool:
    try:
        with socket.create_connection((endpoint.host, endpoint.port), PROBE_S):
            return True
    except OSError:
        return False
