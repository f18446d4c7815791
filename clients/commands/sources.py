"""Where the messages of `leveret publish` come from: an argument, files, lines, a size."""

import os
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

import trio

from broker.protocol.tables import text
from clients.commands.connecting import CommandError
from clients.commands.message_json import Outgoing, parse_message

READ_BYTES: Final = 64 * 1024
# A message is held in memory. It is the broker that says how large one may be; this is RabbitMQ's.
BODY_BYTES_MAX: Final = 128 * 1024 * 1024
STDIN: Final = "-"
KEY_HEADER: Final = "x-partition-key"
T = TypeVar("T")


async def read_bodies(files: tuple[str, ...]) -> AsyncGenerator[Outgoing, None]:
    """Each file is a message."""
    for name in files:
        body = bytearray()
        async for data in _pieces(name):
            body += data
            _check_size(len(body), name)
        yield Outgoing(bytes(body))


async def read_lines(
    files: tuple[str, ...], key_separator: str | None
) -> AsyncGenerator[Outgoing, None]:
    """Each line is a message, without its end and without the key that it may begin with."""
    separator = key_separator.encode() if key_separator is not None else None
    async for where, line in _numbered_lines(files):
        if separator is None:
            yield Outgoing(line)
            continue
        key, found, body = line.partition(separator)
        if not found:
            raise CommandError(f"{where}: there is no {key_separator!r} behind a key")
        yield Outgoing(body, properties={"headers": {KEY_HEADER: text(key)}})


async def read_json_lines(files: tuple[str, ...]) -> AsyncGenerator[Outgoing, None]:
    """Each line is a message as JSON; empty lines are skipped."""
    async for where, line in _numbered_lines(files):
        if line.strip():
            try:
                yield parse_message(line)
            except ValueError as error:
                raise CommandError(f"{where}: {error}") from None


async def _numbered_lines(files: tuple[str, ...]) -> AsyncGenerator[tuple[str, bytes], None]:
    for name in files:
        number = 0
        held: list[bytes] = []  # pieces of a line whose end has not come
        held_bytes = 0
        async for data in _pieces(name):
            first, *others = data.split(b"\n")
            held.append(first)
            held_bytes += len(first)
            _check_size(held_bytes, name)
            for after in others:
                number += 1
                yield f"{_shown(name)}, line {number}", b"".join(held).removesuffix(b"\r")
                held, held_bytes = [after], len(after)
        if held_bytes:
            yield f"{_shown(name)}, line {number + 1}", b"".join(held).removesuffix(b"\r")


async def _pieces(name: str) -> AsyncGenerator[bytes, None]:
    """As they come: a pipe that is slow does not hold up what was read from it before."""
    file = None
    try:
        file = sys.stdin.fileno() if name == STDIN else await _call(os.open, name, os.O_RDONLY)
        while data := await _call(os.read, file, READ_BYTES):
            yield data
    except OSError as error:
        raise CommandError(f"cannot read {_shown(name)}: {error.strerror}") from error
    finally:
        if file is not None and name != STDIN:
            os.close(file)


async def _call(call: Callable[..., T], *arguments: object) -> T:
    """In a thread, which is left behind if it does not end: a pipe may be silent for ever."""
    return await trio.to_thread.run_sync(call, *arguments, abandon_on_cancel=True)


def _check_size(size: int, name: str) -> None:
    if size > BODY_BYTES_MAX:
        raise CommandError(f"{_shown(name)}: a message is at most {BODY_BYTES_MAX} bytes")


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name
