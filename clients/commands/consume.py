"""`leveret consume` and `leveret tail`: messages of queues, streams and exchanges as they come."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click
import trio

from clients.amqp_url import Target
from clients.commands.connecting import amqp_options, channel_to
from clients.commands.message_output import Form, as_body, as_json, as_line, as_raw
from clients.commands.reading import PREFETCH, Reading
from clients.commands.running import run_until_done

PREFETCH_MAX: Final = 65535  # a short on the wire
TAIL_LENGTH_MAX: Final = 10_000  # copies that wait for a slow terminal; older ones are dropped


def _how_much_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="End when nothing came for so long.",
    )(command)
    return click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")(
        command
    )


def _stream_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option(
        "--partition", "partitions", type=int, multiple=True, help="Of a stream: only this one."
    )(command)
    return click.option(
        "--offset",
        help="Of a stream, where to begin: first, last, next (if left out), a number, or an age "
        "such as 10m or 7D.",
    )(command)


def _stream_arguments(
    offset: str | None, partitions: tuple[int, ...], group: str | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if offset is not None:
        found["x-stream-offset"] = int(offset) if offset.isdecimal() else offset
    if partitions:
        found["x-stream-partitions"] = list(partitions)
    if group is not None:
        found["x-group"] = group
    return found


@click.command()
@click.argument("queue")
@_how_much_options
@click.option("--ack", "settle", flag_value="ack", default=True, help="They are done (default).")
@click.option("--no-ack", "settle", flag_value="none", help="The broker forgets them on sending.")
@click.option("--requeue", "settle", flag_value="requeue", help="Put them back in the end.")
@click.option("--reject", "settle", flag_value="reject", help="Send them to the dead letters.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, PREFETCH_MAX),
    default=PREFETCH,
    show_default=True,
    help="Messages that may be on their way at a time.",
)
@_stream_options
@click.option("--group", help="Of a stream: read as a member of this group, with its offsets.")
@click.option("--raw", is_flag=True, help="Bodies with nothing in between.")
@click.option("--json", "as_json_lines", is_flag=True, help="Print one JSON object a line.")
@amqp_options
def consume(
    target: Target,
    *,
    settle: str,
    count: int | None,
    offset: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    raw: bool,
    as_json_lines: bool,
    **options: Any,
) -> None:
    """Take messages from QUEUE and print their bodies, until Ctrl-C, --count or --timeout.

    A message is acked when it has been written to standard output.
    """
    if raw and as_json_lines:
        raise click.UsageError("--raw and --json do not go together")
    if settle == "requeue" and not (count and count <= PREFETCH_MAX):
        raise click.UsageError(f"--requeue needs a --count of at most {PREFETCH_MAX}")
    if settle == "none" and count is not None:
        raise click.UsageError("--no-ack and --count do not go together: more would be forgotten")
    form: Form = as_json if as_json_lines else as_raw if raw else as_body
    arguments = _stream_arguments(offset, partitions, group)
    reading = Reading(form=form, settle=settle, count=count, arguments=arguments, **options)
    run_until_done(partial(_read, target, reading))


async def _read(target: Target, reading: Reading, stop: trio.Event) -> None:
    async with channel_to(target, stop) as channel:
        await reading.run(channel)


@click.command()
@click.argument("stream", required=False)
@click.option("--exchange", help="Instead of a stream: copies of what is published there.")
@click.option(
    "--routing-key", "keys", multiple=True, help="With --exchange: what to bind; # if left out."
)
@_how_much_options
@_stream_options
@click.option("--json", "as_json_lines", is_flag=True, help="Print one JSON object a line.")
@amqp_options
def tail(
    target: Target,
    stream: str | None,
    exchange: str | None,
    keys: tuple[str, ...],
    count: int | None,
    timeout_s: float | None,
    offset: str | None,
    partitions: tuple[int, ...],
    *,
    as_json_lines: bool,
) -> None:
    """Print what comes to STREAM or to an --exchange, and take it from nobody.

    Ends with Ctrl-C, --count or --timeout.
    """
    if (stream is None) == (exchange is None):
        raise click.UsageError("give a STREAM or an --exchange")
    reading = partial(
        Reading, form=as_json if as_json_lines else as_line, count=count, timeout_s=timeout_s
    )
    if stream is not None:
        if keys:
            raise click.UsageError("--routing-key goes with --exchange")
        arguments = _stream_arguments(offset, partitions)
        work = partial(_read, target, reading(queue=stream, arguments=arguments, only_streams=True))
    else:
        if offset is not None or partitions:
            raise click.UsageError("--offset and --partition go with a STREAM")
        work = partial(_read_copies, target, exchange or "", keys or ("#",), reading)
    run_until_done(work)


async def _read_copies(
    target: Target,
    exchange: str,
    keys: tuple[str, ...],
    reading: Callable[..., Reading],
    stop: trio.Event,
) -> None:
    """Through a queue of our own, which loses its oldest messages rather than grow for ever."""
    async with channel_to(target, stop) as channel:
        queue = await channel.declare_queue(arguments={"x-max-length": TAIL_LENGTH_MAX})
        for key in keys:
            await channel.bind_queue(queue, exchange, key)
        await reading(queue=queue.name).run(channel)
