"""Run the scenarios on Leveret and, where installed, on RabbitMQ, and print the comparison."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import brokers
from benchmarks.chart import draw
from benchmarks.idle import measure_idle, raise_file_limit
from benchmarks.measure import measure_load
from benchmarks.report import combine, print_tables, write_json
from benchmarks.scenarios import SCENARIOS, IdleScenario, Scenario
from benchmarks.wire import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.brokers import Broker
    from benchmarks.report import Result


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parse()
    chosen = [one for one in SCENARIOS if re.search(options.only, one.name)]
    if options.list:
        for scenario in chosen:
            print(f"{scenario.name:26} {scenario.about}")
        return 0
    if not chosen:
        print(f"no scenario matches {options.only!r}", file=sys.stderr)
        return 2
    raise_file_limit(max((_connections(one) for one in chosen), default=0))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    with ExitStack() as stack:
        opened = _open_brokers(options, stack)
        results, failures = _run_all(chosen, opened, options)
    print_tables(results)
    if options.svg:
        options.svg.write_text(draw(results), encoding="utf-8")
    if options.json:
        write_json(options.json, results, seconds=options.seconds, repeat=options.repeat)
    return 1 if failures else 0


def _leave(number: int, _frame: object) -> None:
    """Leave through the context managers, which stop what was started here."""
    sys.exit(128 + number)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="PATTERN", default="", help="regular expression searched in the names"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="measured window per run")
    parser.add_argument("--repeat", type=int, default=1, help="runs per scenario; medians count")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw the rates there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers there")
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure Leveret alone")
    parser.add_argument("--leveret-url", metavar="URL", help="use this running Leveret")
    parser.add_argument("--rabbitmq-url", metavar="URL", help="use this running RabbitMQ")
    parser.add_argument("--list", action="store_true", help="print the scenarios and stop")
    options = parser.parse_args()
    if options.seconds <= 0 or options.repeat < 1:
        parser.error("--seconds must be positive and --repeat at least 1")
    if options.no_rabbitmq and options.rabbitmq_url:
        parser.error("--no-rabbitmq contradicts --rabbitmq-url")
    return options


def _connections(scenario: Scenario) -> int:
    return scenario.connections if isinstance(scenario, IdleScenario) else 0


def _open_brokers(options: argparse.Namespace, stack: ExitStack) -> list[Broker]:
    opened = [
        brokers.running("leveret", options.leveret_url)
        if options.leveret_url
        else stack.enter_context(brokers.leveret())
    ]
    if options.no_rabbitmq:
        return opened
    if options.rabbitmq_url:
        opened.append(brokers.running("rabbitmq", options.rabbitmq_url))
    elif brokers.rabbitmq_installed():
        opened.append(stack.enter_context(brokers.rabbitmq()))
    else:
        print("rabbitmq-server is not installed: measuring Leveret alone", file=sys.stderr)
    return opened


def _run_all(
    scenarios: Sequence[Scenario], opened: Sequence[Broker], options: argparse.Namespace
) -> tuple[list[Result], int]:
    """Each scenario on each broker in turn; a failed run is reported and the rest goes on."""
    results: list[Result] = []
    failures = 0
    for scenario in scenarios:
        runs: dict[str, list[Result]] = {broker.name: [] for broker in opened}
        for broker in [broker for _ in range(options.repeat) for broker in opened]:
            print(f"{scenario.name} on {broker.name} …", file=sys.stderr)
            try:
                runs[broker.name].append(_measure(scenario, broker, options.seconds))
            except (BrokerError, OSError) as error:
                failures += 1
                print(f"{scenario.name} on {broker.name} failed: {error}", file=sys.stderr)
        results += [combine(of_broker) for of_broker in runs.values() if of_broker]
    return results, failures


def _measure(scenario: Scenario, broker: Broker, seconds: float) -> Result:
    if isinstance(scenario, IdleScenario):
        return measure_idle(broker, scenario)
    return measure_load(broker, scenario, seconds)


if __name__ == "__main__":
    sys.exit(main())
