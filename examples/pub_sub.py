"""Publish and subscribe: everybody who listens hears everything, from then on.

A fanout exchange copies each message to every queue that is bound to it; each listener has a queue
of its own, which goes when the listener does.

Run it with `python examples/pub_sub.py` while the broker runs (`make run`).
"""

import os

import trio

from clients.trio_client import Connection, connect

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
NEWS = "examples.news"
HEADLINES = ("rain in the morning", "sun at noon")


async def listen(connection: Connection, name: str, task_status: trio.TaskStatus[None]) -> None:
    async with connection.channel() as channel:
        queue = await channel.declare_queue()
        await channel.bind_queue(queue, NEWS)
        async with channel.consume(queue, no_ack=True) as messages:
            task_status.started()  # from here on nothing is missed
            for _ in HEADLINES:
                message = await anext(messages)
                print(f"{name} heard: {message.body.decode()}")


async def main() -> None:
    async with connect(URL) as connection, connection.channel() as channel:
        await channel.declare_exchange(NEWS, "fanout")
        async with trio.open_nursery() as listeners:
            for name in ("Ann", "Bob", "Cleo"):
                await listeners.start(listen, connection, name)
            for headline in HEADLINES:
                await channel.publish(headline.encode(), exchange=NEWS)


if __name__ == "__main__":
    trio.run(main)
