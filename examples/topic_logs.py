"""Topics: log lines by source and severity, and listeners that choose by pattern.

A line is published under `source.severity`. In a pattern `*` is any one word and `#` any number of
them. A line that matches two patterns of one queue is there once.

Run it with `python examples/topic_logs.py` while the broker runs (`make run`).
"""

import os

import trio

from clients.trio_client import connect

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
LOGS = "examples.logs"

LISTENERS = {
    "everything": ["#"],
    "pager": ["*.critical"],
    "mail team": ["mail.*", "*.critical"],
    "storage team": ["kernel.disk.#"],
}
LINES = {
    "mail.info": "42 messages delivered",
    "mail.critical": "the spool is full",
    "kernel.disk.sda.warning": "sda is 91 % full",
    "web.info": "GET / 200",
}


async def main() -> None:
    async with connect(URL) as connection, connection.channel() as channel:
        await channel.declare_exchange(LOGS, "topic")
        queues = {}
        for listener, patterns in LISTENERS.items():
            queues[listener] = await channel.declare_queue()
            for pattern in patterns:
                await channel.bind_queue(queues[listener], LOGS, pattern)

        for key, line in LINES.items():
            await channel.publish(line.encode(), exchange=LOGS, routing_key=key)

        for listener, queue in queues.items():
            print(f"{listener} ({', '.join(LISTENERS[listener])})")
            while message := await channel.get(queue, no_ack=True):
                print(f"    {message.routing_key}: {message.body.decode()}")


if __name__ == "__main__":
    trio.run(main)
