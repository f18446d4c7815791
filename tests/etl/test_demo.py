"""`leveret etl demo` as people run it: with a broker of its own, to the end, in a few seconds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark.etl.demo_data import USERS, Shop
from spark.etl.demo_source import MOVES, STRETCH_MS
from tests.spark.test_sink_kills import DRIVER_DEADLINE_S, end_session
from tests.support.ports import free_ports
from tests.support.process import ROOT, clean_environment

SECONDS, RATE = 4, 4000
STRETCHES = SECONDS * 1000 // STRETCH_MS
PLOTS = (
    "Records in a second",
    "Time of a batch",
    "Records that wait",
    "Memory of state",
    "Dead letters",
)


def bad_orders() -> int:
    """The same seed, the same orders, whatever the time is."""
    shop = Shop()
    for number in range(STRETCHES):
        shop.stretch(number * STRETCH_MS, STRETCH_MS, RATE * STRETCH_MS // 1000)
        for _ in range(MOVES):
            shop.moved_user()
    return shop.bad


@pytest.mark.timeout(900)
def test_the_demo_ends_with_exact_totals_and_a_report(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    report, log = tmp_path / "demo.html", tmp_path / "log"
    command = [sys.executable, "-m", "clients.cli", "etl", "demo", "--report", str(report)]
    command += ["--seconds", str(SECONDS), "--rate", str(RATE)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment({"LEVERET_AMQP_URL": f"amqp://127.0.0.1:{port}"}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        output, _ = process.communicate(timeout=DRIVER_DEADLINE_S)
    finally:
        end_session(process)
    said = log.read_text()
    assert process.returncode == 0, output + said
    assert f"no broker at amqp://guest@127.0.0.1:{port}" in said
    numbers = re.search(r"([\d,]+) events made, ([\d,]+) records read in [\d,]+ batches", output)
    assert numbers, output
    made, read = (int(each.replace(",", "")) for each in numbers.groups())
    assert made > SECONDS * RATE // 2
    assert read == made + USERS + STRETCHES * MOVES
    bad = bad_orders()
    assert bad
    assert f"{bad} orders were bad, {bad} dead letters" in output
    assert f"the report is {report}" in output
    page = report.read_text()
    plots = re.findall(r"<h2>([^<]+)</h2>\n(<svg.*?</svg>)", page, re.DOTALL)
    assert tuple(title for title, _ in plots) == PLOTS
    assert all("<polyline" in plot or "<circle" in plot for _, plot in plots)
    for total in (f"{made:,}", f"{read:,}", f"{bad:,}"):
        assert total in page
    assert "Revenue by country" in page
