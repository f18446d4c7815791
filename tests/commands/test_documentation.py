"""The sessions in docs/commands.md are real: the same commands say the same, in their order."""

import re
import subprocess
import sys

import pytest

from clients.cli import leveret
from tests.support.process import ROOT, clean_environment

PAGE = (ROOT / "docs" / "commands.md").read_text()
BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
FIGURES = "leveret bench"  # which are others each time
COMMAND = f"leveret() {{ '{sys.executable}' -m clients.cli \"$@\"; }}\n"


def sessions() -> list[tuple[str, str]]:
    """Commands and what they print, in the order of the page."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(PAGE):
        for line in block.splitlines(keepends=True):
            text = line.removeprefix("    ")
            if text.startswith("$ "):
                found.append((text[2:], ""))
            else:
                command, output = found[-1]
                found[-1] = (command, output + text)
    return found


def test_every_daily_command_is_on_the_page():
    used = {word for command, _ in sessions() for word in re.findall(r"leveret (\w+)", command)}
    assert used == {
        *("publish", "consume", "tail", "get"),
        *("queues", "exchanges", "bindings", "purge", "bench"),
    }
    assert used <= leveret.commands.keys()


@pytest.mark.leveret_only
def test_the_page_shows_what_commands_print(start_broker, tmp_path):
    broker = start_broker()
    env = clean_environment(
        {
            "LEVERET_AMQP_URL": f"amqp://127.0.0.1:{broker.amqp_port}",
            "LEVERET_URL": broker.http_url(""),
            "PYTHONPATH": str(ROOT),
        }
    )
    for command, output in sessions():
        if FIGURES in command:
            continue
        run = subprocess.run(
            ["bash", "-c", COMMAND + command],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert run.stdout == output, command
