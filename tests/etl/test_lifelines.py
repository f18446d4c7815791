"""Whoever is killed takes along what it started."""

import signal
import subprocess
import sys

PATIENCE_S = 60
# A demo's broker and its maker of events, in a process that does nothing else.
DEMO = """\
import sys, tempfile
from pathlib import Path
from clients.amqp_url import Target
from spark.etl.demo import broker_at
from spark.etl import demo_streams
from spark.etl.demo_run import PREFIX, Demo, Totals

directory = Path(sys.argv[1])
with broker_at(Target.of_url("amqp://127.0.0.1:1"), directory) as url:
    demo_streams.declare(url, PREFIX)
    with Demo(url, directory, 100, 600.0)._events(Totals()):
        print("both run", flush=True)
        sys.stdin.read()
"""


def test_a_demo_that_is_killed_leaves_no_broker_and_no_maker_of_events(tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert demo.stdout is not None
    assert demo.stdout.readline() == b"both run\n"
    demo.send_signal(signal.SIGKILL)
    _, said = demo.communicate(timeout=PATIENCE_S)  # ends when the last who has the pipe does
    assert b"no broker at" in said


def test_a_process_whose_parent_is_gone_already_does_not_begin():
    code = "import os; print(os.getpid())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "spark.lifelines", other.stdout.decode().strip(), "this"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")
