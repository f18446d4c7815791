"""Ports for processes that must know each other's before they listen."""

import os
import random
import socket

# Below those that systems give to outgoing connections, so that none is taken in between.
FIRST, LAST = 12_000, 30_000


def _of_this_process() -> range:
    """Each of pytest-xdist's workers has its own: another could take a port before it is used."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    size = (LAST - FIRST) // workers
    return range(FIRST + worker * size, FIRST + (worker + 1) * size)


def free_ports(count: int) -> list[int]:
    """So many ports on which nobody listens now."""
    chance = random.Random(os.urandom(8))
    mine = _of_this_process()
    found: list[int] = []
    while len(found) < count:
        port = chance.choice(mine)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
