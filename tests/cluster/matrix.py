"""Each fault by itself, and all of them together: a table of what came of it.

    python -m tests.cluster.matrix --seed 1 --seconds 60

A fresh cluster for every row. The table is Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.cluster.chaos import ALL_FAULTS, NETWORK_FAULTS, NODE_FAULTS, make_target, run_chaos

if TYPE_CHECKING:
    from tests.cluster.workload import Verdict

HEADINGS = (
    "faults",
    "how many",
    "confirmed",
    "unknown",
    "delivered",
    "again, flagged",
    "changes of definitions",
    "longest pause s",
    "whole again after s (median, most)",
    "verdict",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.matrix")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", default=",".join(ALL_FAULTS), help="faults that get a row")
    parser.add_argument("--target", choices=["cluster", "single"], default="cluster")
    options = parser.parse_args()
    rows = [(fault,) for fault in options.rows.split(",")]
    if options.target == "cluster":
        rows += [(*NODE_FAULTS, *NETWORK_FAULTS), ALL_FAULTS]
    print("| " + " | ".join(HEADINGS) + " |", flush=True)
    print("|---" * len(HEADINGS) + "|", flush=True)
    problems = 0
    for number, faults in enumerate(rows):
        verdict = _run(options, faults, options.seed + number)
        problems += len(verdict.problems)
        print("| " + " | ".join(_cells(faults, verdict)) + " |", flush=True)
        for problem in verdict.problems:
            print(f"seed {options.seed + number}: {problem}", file=sys.stderr, flush=True)
    return 1 if problems else 0


def _run(options: argparse.Namespace, faults: tuple[str, ...], seed: int) -> Verdict:
    def tell(line: str) -> None:
        print(f"{','.join(faults)}: {line}", file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="leveret-chaos-") as home,
        make_target(options.target, Path(home)) as cluster,
    ):
        if "full" in faults:
            cluster.use_small_disks()
        cluster.start()
        return run_chaos(
            cluster,
            seed=seed,
            seconds=options.seconds,
            faults=faults,
            tell=tell,
            features=options.target == "cluster",
        )


def _cells(faults: tuple[str, ...], verdict: Verdict) -> list[str]:
    recoveries = verdict.recoveries_s
    return [
        ", ".join(faults),
        str(verdict.faults),
        f"{verdict.confirmed:,}",
        f"{verdict.unknown:,}",
        f"{verdict.delivered:,}",
        f"{verdict.redelivered:,}",
        f"{verdict.operations:,}",
        f"{verdict.longest_pause_s:.1f}",
        f"{median(recoveries):.1f}, {max(recoveries):.1f}" if recoveries else "not waited for",
        "sound" if not verdict.problems else f"{len(verdict.problems)} problem(s)",
    ]


if __name__ == "__main__":
    sys.exit(main())
