"""examples/README.md: which programs there are, how they are run and what they print."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.process import ROOT, BrokerProcess, clean_environment

EXAMPLES = ROOT / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
# A machine that stalls for long should not fail a program that does what it should.
DEADLINE_S = 100

# An empty line belongs to what is printed if the next one does, and is further to the right.
_SESSION = re.compile(
    r"^    \$ (\S+) (examples/\S+)\n((?:    (?!\$).*\n|\n(?=     ))+)", re.MULTILINE
)


class Session(NamedTuple):
    """What a reader types, and what they see."""

    command: str
    program: str
    output: str


def sessions() -> dict[str, Session]:
    """By name of the program."""
    found = {}
    for command, program, block in _SESSION.findall(PAGE):
        output = re.sub(r"^    ", "", block, flags=re.MULTILINE)
        found[Path(program).name] = Session(command, program, output)
    return found


SESSIONS = sessions()


def environment(broker: BrokerProcess, **others: str) -> dict[str, str]:
    places = {"AMQP_URL": broker.amqp_url(), "LEVERET_URL": broker.http_url().rstrip("/")}
    return clean_environment({**places, **others})


def run(
    broker: BrokerProcess,
    name: str,
    *arguments: str,
    deadline_s: float = DEADLINE_S,
    **others: str,
) -> str:
    """The program as a process of its own, as the page says; what it printed."""
    command = SESSIONS[name].command
    program = sys.executable if command == "python" else command
    finished = subprocess.run(
        [program, str(EXAMPLES / name), *arguments],
        cwd=ROOT,
        env=environment(broker, **others),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished.stdout
