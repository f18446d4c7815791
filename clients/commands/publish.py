"""`leveret publish`: its options, and what it says in the end."""

from typing import Any

import click

from broker.command_output import print_json
from clients.amqp_url import Target
from clients.commands.connecting import amqp_options
from clients.commands.message_json import NUMBERS, check_properties
from clients.commands.publishing import WINDOW, Publishing, Wish
from clients.commands.running import InterruptedByUserError, run_until_done
from clients.commands.sources import BODY_BYTES_MAX
from clients.commands.values import parse_pairs, parse_values


@click.command()
@click.argument("routing_key", required=False)
@click.argument("body", required=False)
@click.option("--exchange", help="Where to; the default exchange, if left out: to a queue.")
@click.option("--file", "files", multiple=True, help="A file is a message; - is standard input.")
@click.option("--lines", is_flag=True, help="Each line of the files or of stdin is a message.")
@click.option("--json-lines", is_flag=True, help="Each line is a message as `consume --json` has.")
@click.option(
    "--size", type=click.IntRange(0, BODY_BYTES_MAX), help="A body of so many bytes, made up."
)
@click.option(
    "--count", type=click.IntRange(min=1), default=1, show_default=True, help="So many times."
)
@click.option("--header", "headers", multiple=True, help="NAME=VALUE; numbers, true … as in JSON.")
@click.option("--property", "properties", multiple=True, help="NAME=VALUE, as content_type=…")
@click.option("--key", help="Of a stream: records with the same key are in one partition.")
@click.option("--key-separator", help="With --lines: what stands between key and body.")
@click.option("--transient", is_flag=True, help="Need not survive a restart of the broker.")
@click.option(
    "--mandatory/--no-mandatory", default=True, show_default=True, help="A queue must take it."
)
@click.option(
    "--confirm/--no-confirm", default=True, show_default=True, help="Wait for the broker's word."
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    default=WINDOW,
    show_default=True,
    help="Messages that may be unconfirmed at a time.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages a second, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@amqp_options
def publish(
    target: Target,
    headers: tuple[str, ...],
    properties: tuple[str, ...],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish BODY under ROUTING_KEY, or what is in files, or what comes from standard input.

    Ends when the broker has confirmed everything. Exit code 3: no queue takes a message. 4: a queue
    refuses it.
    """
    wish = Wish(
        headers=parse_values(headers, "--header"), properties=_checked(properties), **options
    )
    wish.check()
    publishing = Publishing(target, wish)
    done = run_until_done(publishing.run)
    sent, confirmed = publishing.sent, publishing.confirmed
    if as_json:
        counts = {"published": sent, "confirmed": confirmed, "bytes": publishing.sent_bytes}
        print_json({**counts, "seconds": round(publishing.seconds, 6)})
    elif done:
        how = "confirmed" if wish.confirm else "without confirms"
        click.echo(f"published {sent} message{'s' * (sent != 1)}, {how}")
    if not done:
        raise InterruptedByUserError(f"{confirmed} of {sent} messages were confirmed")


def _checked(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spelled, value in parse_pairs(pairs, "--property").items():
        name = spelled.replace("-", "_")
        found[name] = int(value) if name in NUMBERS and value.isdecimal() else value
    try:
        if "headers" in found:
            raise ValueError("headers are given one by one with --header")
        check_properties(found)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--property") from None
    return found
