"""The `leveret` command with everything: the broker's own commands, and those that speak AMQP.

It is here because the broker never imports its clients; `python -m broker` has its own commands.
"""

import sys
from typing import NoReturn

from broker.cli import leveret, run
from clients.commands.bench import bench
from clients.commands.bindings import bindings
from clients.commands.consume import consume, tail
from clients.commands.etl import etl
from clients.commands.exchanges import exchanges
from clients.commands.get import get
from clients.commands.publish import publish
from clients.commands.queues import purge, queues

for _command in (publish, consume, tail, get, queues, exchanges, bindings, purge, bench, etl):
    leveret.add_command(_command)


def main() -> NoReturn:
    """Entry point of the `leveret` command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
