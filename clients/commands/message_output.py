"""Messages on standard output: bodies, lines for people, or JSON lines."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Final

import trio

from clients.amqp_message import Message
from clients.commands.message_json import message_json, text_of

WRITE_BYTES: Final = 64 * 1024  # what a pipe holds, usually

Form = Callable[[Message], bytes]


def as_json(message: Message) -> bytes:
    return json.dumps(message_json(message)).encode() + b"\n"


def as_raw(message: Message) -> bytes:
    return message.body


def as_body(message: Message) -> bytes:
    """For a program as it is; for a terminal without what could play tricks on it."""
    body = message.body
    return (for_terminal(body, kept="\t\n") if sys.stdout.isatty() else body) + b"\n"


def as_line(message: Message) -> bytes:
    """Where it stands in a stream, or where it was published to; its key; its body."""
    headers = message.headers
    if "x-stream-offset" in headers:
        start = f"{headers.get('x-stream-partition', 0)}:{headers['x-stream-offset']}"
        key = headers.get("x-partition-key")
        start += f" key={key}" if key is not None else ""
    else:
        start = f"{message.exchange or '(default)'} {message.routing_key}"
    text, encoding = text_of(message.body)
    shown = text if encoding == "string" else f"base64:{text}"
    return for_terminal(f"{start} {shown}".encode("utf-8", "replace")) + b"\n"


def for_terminal(data: bytes, *, kept: str = "\t") -> bytes:
    text = data.decode("utf-8", "replace")
    if text.isprintable():
        return data
    stand_in = "\N{REPLACEMENT CHARACTER}"
    shown = "".join(c if c.isprintable() or c in kept else stand_in for c in text)
    return shown.encode("utf-8", "replace")


async def write(messages: Iterable[Message], form: Form) -> None:
    """Returns when they are written. Raises BrokenPipeError if nobody reads any more.

    In a thread: whoever reads may take an hour over it, while the connection must live. Past
    Python's buffer: a thread that hangs in there would hang the end of the process as well.
    """
    data = b"".join(map(form, messages))
    if data:
        await trio.to_thread.run_sync(_write_all, data, abandon_on_cancel=True)


def _write_all(data: bytes) -> None:
    file = sys.stdout.fileno()
    left = memoryview(data)
    while left:
        left = left[os.write(file, left[:WRITE_BYTES]) :]
