"""`python -m broker`: the `leveret` command, where `serve` may be left out."""

import sys

from broker.cli import leveret, run

# What `leveret` itself answers to; anything else, or nothing, is meant for `serve`.
_KNOWN = {*leveret.commands, "--version", "--help"}

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in _KNOWN:
        arguments = ["serve", *arguments]
    sys.exit(run(arguments))
