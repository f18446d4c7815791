"""Replay one simulated run of a cluster with its trace, or soak many: --seed N, or --seeds A-B."""

import logging
import sys
import time
from argparse import ArgumentParser
from collections import Counter

from tests.cluster_simulation.world import run
from tests.simulation.__main__ import root_of


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def soak(first: int, last: int) -> None:
    failed = []
    counts: Counter[str] = Counter()
    for seed in range(first, last + 1):
        began = time.monotonic()
        try:
            counts.update(run(seed).ledger.counts)
        except Exception as error:
            failed.append(seed)
            say(f"seed {seed}: {root_of(error)!r}"[:400] + f" ({time.monotonic() - began:.1f} s)")
        if seed % 20 == 0:
            say(f"seed {seed} done: {dict(counts)}")
    if failed:
        sys.exit(f"failed: {failed}")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", metavar="A-B", default="1-1000")
    parser.add_argument("--logs", action="store_true", help="show what the nodes log, too")
    args = parser.parse_args()
    logging.getLogger("leveret").setLevel(logging.INFO if args.logs else logging.CRITICAL)
    if args.seed is not None:
        run(args.seed, say)
    else:
        first, last = args.seeds.split("-")
        soak(int(first), int(last))


if __name__ == "__main__":
    main()
