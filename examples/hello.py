"""Hello, world: one message into a queue and out of it again.

Run it with `python examples/hello.py` while the broker runs (`make run`).
"""

import os

import trio

from clients.trio_client import connect

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


async def main() -> None:
    async with connect(URL) as connection, connection.channel() as channel:
        # Without a name the broker chooses one, and the queue goes when the connection does.
        queue = await channel.declare_queue()
        await channel.publish(b"hello, world", routing_key=queue)
        print("sent, and the broker has it")

        async with channel.consume(queue) as messages:
            message = await anext(messages)
            print("received:", message.body.decode())
            message.ack()


if __name__ == "__main__":
    trio.run(main)
