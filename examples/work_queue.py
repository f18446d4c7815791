"""A work queue: jobs that wait on disk, workers that share them, and no job lost.

Each worker has one job at a time, so a slow one does not hoard. A job that fails comes again after
a pause, to whoever is free; one that can never work is put aside, in the queue of dead letters.

Run it with `python examples/work_queue.py` while the broker runs (`make run`). Workers are mostly
programs of their own: `trio.run(run_worker, URL, JOB, handler)`.
"""

import functools
import logging
import os
from collections import Counter

import trio

from clients.amqp_message import Message
from clients.trio_client import connect
from clients.worker import GiveUpError, Job, work

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
JOB = Job("examples.photos", attempts=3, retry_s=0.2, prefetch=1)
PHOTOS = ("cat.jpg", "dog.jpg", "huge.png", "notes.txt", "owl.jpg", "fox.jpg")


class Studio:
    """What the workers of this program have done."""

    def __init__(self) -> None:
        self.attempts = Counter[str]()
        self.left = len(PHOTOS)
        self.finished = trio.Event()

    async def resize(self, worker: str, message: Message) -> None:
        photo = message.body.decode()
        self.attempts[photo] += 1
        if photo == "huge.png" and self.attempts[photo] == 1:
            print(f"{worker}: no memory for {photo}, this time")
            raise MemoryError
        await trio.sleep(0.05)
        self.left -= 1
        if self.left == 0:
            self.finished.set()
        if photo.endswith(".txt"):
            print(f"{worker}: {photo} is no photo")
            raise GiveUpError("no photo")
        print(f"{worker}: resized {photo} at attempt {self.attempts[photo]}")


async def main() -> None:
    logging.disable()  # of failures, with their tracebacks; here they are part of the story
    studio = Studio()
    async with connect(URL) as connection, connection.channel() as channel:
        for queue in (JOB.queue, JOB.dead_letters):
            await channel.delete_queue(queue)  # should an earlier run have left something
        await JOB.declare(channel)
        async with channel.publishing() as out:
            for photo in PHOTOS:
                await out.send(photo.encode(), routing_key=JOB.queue, message_id=photo)
        print(f"{out.confirmed} jobs are on disk")

        async with trio.open_nursery() as workers:
            for name in ("Ann", "Bob"):
                handler = functools.partial(studio.resize, name)
                start = functools.partial(work, stop=studio.finished)
                workers.start_soon(start, connection, JOB, handler)

        async with channel.consume(JOB.dead_letters) as dead:
            message = await anext(dead)
            print(f"put aside: {message.body.decode()}")
            message.ack()
        for queue in (JOB.queue, JOB.dead_letters):
            await channel.delete_queue(queue)


if __name__ == "__main__":
    trio.run(main)
