"""A stream: what was read stays, so that others read it too, and anyone again from anywhere.

Temperatures go into a stream. They are read from the first, from an offset, from a moment on, and
by a group, which remembers how far it got: who comes after a member that is gone goes on there.

Run it with `python examples/stream_replay.py` while the broker runs (`make run`).
"""

import os
import time
from collections.abc import Iterable

from clients import blocking, streams

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
STREAM = "examples.temperatures"
MORNING, AFTERNOON = (14, 15, 17), (21, 22, 20)


def write(client: streams.StreamClient, temperatures: Iterable[int]) -> None:
    with client.producer(STREAM) as producer:
        for each in temperatures:
            producer.send(b"%d C" % each, key=b"garden")
    print(f"written: {producer.confirmed} records, on disk")


def read(client: streams.StreamClient, offset: int) -> str:
    records = client.reader(STREAM, partition=0, offset=offset)
    return ", ".join(f"{record.offset}: {record.value.decode()}" for record in records)


def take_turn(client: streams.StreamClient, member: str, count: int) -> None:
    """Read as a member of a group, commit after `count` records, and leave."""
    with client.group("examples.garden", [STREAM], label=member) as group:
        done = []
        while len(done) < count:
            if polled := group.poll():
                done += polled.records()
        del done[count:]
        group.commit({polled.partition: done[-1].offset + 1})
    print(f"{member} has done", ", ".join(record.value.decode() for record in done))


def main() -> None:
    with blocking.connect(URL) as connection, connection.channel() as channel:
        channel.delete_queue(STREAM)  # should an earlier run have left it
        channel.declare_queue(STREAM, arguments={"x-queue-type": "stream"})

        with streams.connect(URL) as client:
            write(client, MORNING)
            time.sleep(0.01)
            noon_ms = time.time_ns() // 1_000_000
            write(client, AFTERNOON)

            print("from the first:", read(client, 0))
            print("once more, from offset 4:", read(client, 4))
            print("since noon:", read(client, client.offsets(STREAM, noon_ms)[0]))

            take_turn(client, "Ann", 2)
            take_turn(client, "Bob", 4)
        channel.delete_queue(STREAM)


if __name__ == "__main__":
    main()
