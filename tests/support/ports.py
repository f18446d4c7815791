"""Ports for processes that must know each other's before they listen."""

import os
import random
import socket

# Below those that systems give to outgoing connections, so that none is taken in between.
FIRST, LAST = 12_000, 30_000


def free_ports(count: int) -> list[int]:
    """So many ports on which nobody listens now."""
    chance = random.Random(os.urandom(8))
    found: list[int] = []
    while len(found) < count:
        port = chance.randrange(FIRST, LAST)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
