"""Runs the daily commands: in this process where that tells enough, else in one of their own."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from clients.cli import run
from tests.support.process import ROOT, BrokerProcess, clean_environment
from tests.support.streams import fill

WAIT_S = 60.0  # for a process to end; then the test has failed


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def fails(self, code: int, *expected: str) -> None:
        """With one line that has these words."""
        assert (self.code, self.out) == (code, ""), self
        (line,) = self.err.splitlines()
        assert line.startswith("leveret: ")
        for text in expected:
            assert text in line


@pytest.fixture
def addresses(broker: BrokerProcess) -> dict[str, str]:
    """What tells commands where the shared broker is."""
    amqp = f"amqp://{broker.host}:{broker.amqp_port}"
    return {"LEVERET_AMQP_URL": amqp, "LEVERET_URL": broker.http_url("")}


@pytest.fixture
def leveret(addresses, monkeypatch, capfd) -> Callable[..., Result]:
    """Runs a command in this process."""
    for name in [name for name in os.environ if name.startswith("LEVERET_")]:
        monkeypatch.delenv(name)
    for name, value in addresses.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        try:
            code = run(arguments)
        except SystemExit as error:
            code = error.code
        return Result(code, *capfd.readouterr())

    return call


class Command:
    """A command in a process of its own."""

    def __init__(self, arguments: tuple[str, ...], env: dict[str, str], **streams) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clients.cli", *arguments],
            cwd=ROOT,
            env=clean_environment(env),
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **streams,
            },
        )

    def end(self, stdin: bytes | None = None) -> Result:
        out, err = self.process.communicate(stdin, timeout=WAIT_S)
        return Result(self.process.returncode, (out or b"").decode(), (err or b"").decode())


@pytest.fixture
def start(addresses) -> Iterator[Callable[..., Command]]:
    """Starts a command; whatever still runs at the end of the test is killed."""
    with contextlib.ExitStack() as stack:

        def call(*arguments: str, env: dict[str, str] | None = None, **streams) -> Command:
            command = Command(arguments, {**addresses, **(env or {})}, **streams)
            stack.enter_context(command.process)  # closes its pipes, waits for it
            stack.callback(command.process.kill)
            return command

        yield call


@pytest.fixture
def queue(scene, channel) -> str:
    return scene.queue(channel, durable=True)


@pytest.fixture
def filled(scene, queue) -> Callable[..., str]:
    """The queue with these messages in it."""

    def put(*bodies: bytes, **properties) -> str:
        fill(scene, queue, bodies, **properties)
        return queue

    return put


@pytest.fixture
def terminal() -> Iterator["Terminal"]:
    terminal = Terminal()
    yield terminal
    terminal.close()


class Terminal:
    """One end is for a command, the other is the screen."""

    def __init__(self) -> None:
        self._screen, self.end = pty.openpty()

    def type(self, text: bytes) -> None:
        os.write(self._screen, text)

    def shown(self) -> str:
        """All that was written there, when nobody has it open any more."""
        os.close(self.end)
        self.end = -1
        found = b""
        with contextlib.suppress(OSError):  # how a terminal says that it is over
            while data := os.read(self._screen, 4096):
                found += data
        return found.replace(b"\r\n", b"\n").decode()

    def close(self) -> None:
        for file in (self._screen, self.end):
            if file >= 0:
                os.close(file)
