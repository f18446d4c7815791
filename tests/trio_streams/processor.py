"""A member that copies streams exactly once, as a process that a test may kill.

    python -m tests.trio_streams.processor URL GROUP SOURCE TARGET INSTANCE

It says a word for each batch that it has begun with.
"""

import sys

import trio

from clients.backoff import Backoff
from clients.stream_group_core import Polled
from clients.trio_stream_transactions import Output
from clients.trio_streams import connect_streams


async def copy(url: str, group: str, source: str, target: str, instance: str) -> None:
    async def handle(batch: Polled, out: Output) -> None:
        for record in batch.records():
            await out.send(target, record.value, partition=batch.partition.number)
        print("begun", flush=True)

    async with connect_streams(url, reconnect=Backoff(first_s=0.01, most_s=0.1)) as streams:
        await streams.process(
            group, [source], [target], handle, instance=instance, heartbeat_s=0.1, fetch_bytes=1
        )


if __name__ == "__main__":
    trio.run(copy, *sys.argv[1:])
