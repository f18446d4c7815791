"""Replay one simulated run with its trace, or soak many: --seed N, or --seeds A-B."""

import sys
from argparse import ArgumentParser

from tests.simulation.run import run


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def root_of(error: BaseException) -> BaseException:
    """What went wrong first, out of the wrappings of nurseries and of Trio's own callbacks."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def soak(first: int, last: int) -> None:
    failed = []
    for seed in range(first, last + 1):
        try:
            run(seed)
        except Exception as error:
            failed.append(seed)
            say(f"seed {seed}: {root_of(error)!r}"[:400])
        if seed % 100 == 0:
            say(f"seed {seed} done")
    if failed:
        sys.exit(f"failed: {failed}")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", metavar="A-B", default="1-1000")
    args = parser.parse_args()
    if args.seed is not None:
        run(args.seed, say)
    else:
        first, last = args.seeds.split("-")
        soak(int(first), int(last))


if __name__ == "__main__":
    main()
