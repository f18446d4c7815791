"""How commands reach a broker over AMQP: options that say where, errors that say why not."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
import trio
from click.core import ParameterSource

from broker.admin_client import HTTP_URL, AdminClient
from broker.config import AMQP_URL_VARIABLE, PASSWORD_VARIABLE, URL_VARIABLE, USER_VARIABLE
from clients.amqp_errors import (
    AMQPClientError,
    AuthenticationError,
    ConnectionLostError,
    ConsumerCancelledError,
    ReplyError,
)
from clients.amqp_url import Target
from clients.commands.running import InterruptedByUserError, run_until_done
from clients.trio_background import in_background, until
from clients.trio_channel import Channel
from clients.trio_client import NEVER, Connection, connect

DEFAULT_URL: Final = "amqp://127.0.0.1:5672"
CLIENT_NAME: Final = "leveret command"
NOT_ALLOWED: Final = 530  # to enter the vhost, or there is none

# What to do about it, by AMQP's reply codes.
HINTS: Final = {
    403: "an administrator can give the user permission",
    404: "`leveret queues` and `leveret exchanges` show what there is",
    405: "its owner, the connection that declared it, must go first",
    NOT_ALLOWED: "--vhost says which one",
    540: "`leveret tail` and `leveret consume` read a stream, retention takes from it",
}


T = TypeVar("T")


class CommandError(click.ClickException):
    """What went wrong, and what to do, in one line."""

    so_far = ""  # what was done before it did

    def format_message(self) -> str:
        return f"{self.message} ({self.so_far})" if self.so_far else str(self.message)


def amqp_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which broker, and call it with its `target`."""

    @click.option(
        "--amqp-url",
        default=DEFAULT_URL,
        envvar=AMQP_URL_VARIABLE,
        show_default=True,
        show_envvar=True,
        help="The broker's AMQP address; amqps:// for TLS, several hosts for a cluster.",
    )
    @click.option("--vhost", default="/", show_default=True, help="The virtual host.")
    @login_options
    @click.pass_context
    @functools.wraps(command)
    def with_target(
        context: click.Context,
        /,
        *,
        amqp_url: str,
        vhost: str,
        user: str,
        password: str,
        **arguments: Any,
    ) -> None:
        target = _target(context, amqp_url, {"user": user, "password": password, "vhost": vhost})
        command(target=target, **arguments)

    return with_target


def both_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same, and a `client` for the node's management API as well."""

    @click.option(
        "--url",
        default=HTTP_URL,
        envvar=URL_VARIABLE,
        show_default=True,
        show_envvar=True,
        help="The node's HTTP address.",
    )
    @amqp_options
    @functools.wraps(command)
    def with_both(*, url: str, target: Target, **arguments: Any) -> None:
        command(client=AdminClient(url, target.user, target.password), target=target, **arguments)

    return with_both


def login_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same as those of the commands that speak HTTP."""
    command = click.option(
        "--password",
        default="guest",
        envvar=PASSWORD_VARIABLE,
        show_envvar=True,
        help="The user's password.",
    )(command)
    return click.option(
        "--user",
        default="guest",
        envvar=USER_VARIABLE,
        show_default=True,
        show_envvar=True,
        help="Who to log in as.",
    )(command)


def _target(context: click.Context, url: str, options: dict[str, str]) -> Target:
    """What the URL says counts; what it leaves out comes from the options."""
    try:
        target = Target.of_url(url)
    except ValueError as error:
        raise click.BadParameter(f"{url!r}: {error}", param_hint="--amqp-url") from None
    _, slashes, rest = url.partition("//")
    hosts, _, path = rest.partition("/")
    in_url = {"vhost"} if slashes and path.partition("?")[0] else set()
    login, at, _ = hosts.rpartition("@")
    if at:
        in_url |= {"user", "password"} if ":" in login else {"user"}
    for name in in_url:
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and options[name] != getattr(target, name):
            raise click.UsageError(f"--{name} is not what --amqp-url says: give only one of them")
    said = {name: getattr(target, name) if name in in_url else options[name] for name in options}
    return replace(target, user=said["user"], password=said["password"], vhost=said["vhost"])


@asynccontextmanager
async def connected(target: Target, stop: trio.Event) -> AsyncIterator[Connection]:
    """A connection for a command. Raises CommandError for whatever the broker, or none, says.

    The event ends the block, and not the connection: that is still there to clean up with.
    """
    opened = False
    try:
        with trio.CancelScope() as attempt:

            async def give_up() -> None:
                await stop.wait()
                if not opened:
                    attempt.cancel()

            async with (
                in_background(give_up),
                connect(target, name=CLIENT_NAME, reconnect=NEVER) as connection,
            ):
                opened = True
                async with until(stop):
                    yield connection
    except AMQPClientError as error:
        raise explained(error, target, opened=opened) from error
    if not opened:
        raise InterruptedByUserError("there was no connection yet")


@asynccontextmanager
async def channel_to(target: Target, stop: trio.Event) -> AsyncIterator[Channel]:
    """A channel on a connection of its own."""
    async with connected(target, stop) as connection, connection.channel() as channel:
        yield channel


def on_channel(target: Target, work: Callable[[Channel], Awaitable[T]]) -> T:
    """What comes of some work on a channel. Raises also if it was interrupted before its end."""
    found: list[T] = []

    async def run(stop: trio.Event) -> None:
        async with channel_to(target, stop) as channel:
            found.append(await work(channel))

    if not run_until_done(run) and not found:
        raise InterruptedByUserError("what was under way may or may not have happened")
    return found[0]


def explained(error: AMQPClientError, target: Target, *, opened: bool) -> CommandError:
    if isinstance(error, AuthenticationError):
        if error.code == NOT_ALLOWED:
            return CommandError(f"{error}; {HINTS[error.code]}")
        return CommandError(f"user {target.user!r} is refused; check --user and --password")
    if isinstance(error, ConnectionLostError):
        if opened:
            return CommandError(f"{error}; what was under way may or may not have happened")
        return CommandError(f"{error}; does a broker run there? --amqp-url says where to look")
    if isinstance(error, ReplyError) and error.code in HINTS:
        return CommandError(f"{error}; {HINTS[error.code]}")
    if isinstance(error, ConsumerCancelledError):
        return CommandError("the queue is gone: it was deleted, or the node that had it left")
    return CommandError(str(error))
