"""Dead letters: orders that a program cannot read are put aside, and replayed when it is mended.

The queue names where its rejected messages go, and they say themselves why they are there. Replay
is the broker's: a message goes back to the queue it died in, and leaves the dead letters only when
that has it on disk. `leveret dlq list`, `peek` and `replay` do by hand what this program does.

Run it with `python examples/dlq_replay.py` while the broker runs (`make run`).
"""

import base64
import json
import os
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from clients.blocking import connect
from clients.blocking_channel import Channel

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
HTTP_URL = os.environ.get("LEVERET_URL", "http://127.0.0.1:15672")
QUEUE, DEAD = "examples.orders", "examples.orders.dead"
ORDERS = ({"order": 1, "items": 3}, {"order": 2, "items": None}, {"order": 3})


def total(order: dict[str, Any]) -> int:
    return 10 * order["items"]


def mended_total(order: dict[str, Any]) -> int:
    return 10 * (order.get("items") or 0)


def work(channel: Channel, price: Callable[[dict[str, Any]], int]) -> None:
    """Through all that is in the queue."""
    while message := channel.get(QUEUE):
        order = json.loads(message.body)
        try:
            print(f"order {order['order']}: {price(order)} euros")
            message.ack()
        except (LookupError, TypeError) as error:
            print(f"order {order['order']}: {type(error).__name__}, put aside")
            message.reject()


def dead_letters(path: str = "", **body: Any) -> Any:
    """Ask the broker about the dead letters, or tell it what to do with them."""
    request = urllib.request.Request(f"{HTTP_URL}/api/dlq/%2F/{DEAD}{path}")
    request.add_header("Authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}")
    if body:
        request.method, request.data = "POST", json.dumps(body).encode()
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main() -> None:
    with connect(URL) as connection, connection.channel() as channel:
        for queue in (QUEUE, DEAD):
            channel.delete_queue(queue)  # should an earlier run have left something
        channel.declare_queue(DEAD)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
        channel.declare_queue(QUEUE, arguments=to_dead)
        for order in ORDERS:
            channel.publish(json.dumps(order).encode(), routing_key=QUEUE)

        work(channel, total)
        while len(found := dead_letters()) < 2:
            time.sleep(0.05)  # they are on their way
        for letter in found:
            death = letter["death"]
            print(f"dead letter: {letter['payload']} ({death['reason']} in {death['queue']})")

        print("the program is mended:", dead_letters("/replay", all=True))
        work(channel, mended_total)
        for queue in (QUEUE, DEAD):
            channel.delete_queue(queue)


if __name__ == "__main__":
    main()
