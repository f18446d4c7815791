"""Connections of this process to brokers: one for each, kept for the tasks to come.

Spark fails a query for an exception of its planner, and may not run a failed task again, so that a
broker which restarts is waited for here: requests are asked again until its time is over.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from broker.protocol.stream_wire import STAGED_BY_OTHERS
from clients.stream_address import Address
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_plans import may_ask_again
from clients.streams import StreamClient
from spark.addressing import Broker

T = TypeVar("T")

LOGIN_S_MIN: Final = 5.0  # longer than a broker takes that is busy, however soon a query is to fail
PAUSE_S: Final = 0.5  # between attempts, each of which has shorter ones of its own
# A Spark worker may be forked off another one, and a client belongs to one thread.
_Place = tuple[Address, int, int]
_clients: dict[_Place, StreamClient] = {}


def client(broker: Broker) -> StreamClient:
    """This thread's client, dialled when it is first used; to be asked through `ask`."""
    place = (broker.address, os.getpid(), threading.get_ident())
    if place not in _clients:
        _clients[place] = StreamClient(
            broker.address,
            name=f"spark {os.getpid()}",
            login_timeout_s=max(broker.reconnect_s, LOGIN_S_MIN),
        )
    return _clients[place]


def ask(broker: Broker, request: Callable[[StreamClient], T]) -> T:
    """What may be asked again, until a broker that is away has been away for too long."""
    patience = Patience(broker)
    while True:
        try:
            return request(client(broker))
        except (ConnectionLostError, RefusedError) as error:
            patience.wait_after(error)


class Patience:
    """How long one request, or one read without progress, may yet take."""

    def __init__(self, broker: Broker) -> None:
        self._allowed_s = broker.reconnect_s
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self._allowed_s

    def wait_after(self, error: Exception) -> None:
        """Before the next attempt; raises the error if there is to be none."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0 or not _may_pass(error):
            raise error
        time.sleep(min(PAUSE_S, left_s))


def _may_pass(error: Exception) -> bool:
    """Whether it is worth waiting: rows of a write that was killed make room within a minute."""
    if isinstance(error, RefusedError) and STAGED_BY_OTHERS in error.text:
        return True
    return not isinstance(error, ConnectionLostError | RefusedError) or may_ask_again(error)
