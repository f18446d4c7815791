"""Confirms: how a publisher knows that its messages are safe, and what it hears if they are not.

A publish returns when the broker has taken charge: every queue that the message went to has it, on
disk if the queue is durable. Waiting for each message costs a round trip and an fsync each; a
window lets many share them.

Run it with `python examples/confirms.py` while the broker runs (`make run`).
"""

import os
import secrets
import time

import trio

from clients.amqp_errors import NackedError, ReturnedError
from clients.trio_client import connect

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
COUNT = 200
QUEUE = f"examples.confirms.{secrets.token_hex(4)}"
ARGUMENTS = {
    "x-max-length": 2 * COUNT,
    "x-overflow": "reject-publish",
    "x-expires": 60_000,  # ms without use, should this program be killed
}


async def main() -> None:
    async with connect(URL) as connection, connection.channel() as channel:
        await channel.declare_queue(QUEUE, arguments=ARGUMENTS)

        started = time.perf_counter()
        for number in range(COUNT):
            await channel.publish(b"%d" % number, routing_key=QUEUE)
        print(f"{COUNT} one by one: {time.perf_counter() - started:.3f} s")

        started = time.perf_counter()
        async with channel.publishing(window=100) as out:
            for number in range(COUNT):
                await out.send(b"%d" % number, routing_key=QUEUE)
        print(f"{out.confirmed} in windows of 100: {time.perf_counter() - started:.3f} s")

        try:
            await channel.publish(b"one too many", routing_key=QUEUE)
        except NackedError:
            print("refused: the queue is full")

        try:
            await channel.publish(b"lost", routing_key="examples.nowhere", mandatory=True)
        except ReturnedError as error:
            print(f"came back: {error.message.body.decode()} ({error})")

        await channel.delete_queue(QUEUE)


if __name__ == "__main__":
    trio.run(main)
