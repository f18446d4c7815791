"""The worker: retries, dead letters, leases, nothing done twice, a graceful end."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from clients.amqp_message import Message
from clients.idempotency import IdempotencyStore
from clients.trio_client import Connection, connect
from clients.worker import GiveUpError, Job, work
from tests.support.process import ROOT

pytestmark = pytest.mark.leveret_only


async def _publish(connection: Connection, queue: str, *ids: str) -> None:
    async with connection.channel() as channel:
        for each in ids:
            await channel.publish(each.encode(), routing_key=queue, message_id=each)


async def test_failures_are_tried_again_and_then_given_up(amqp_url: str, name: str) -> None:
    tries: Counter[bytes] = Counter()
    finished = trio.Event()

    async def handler(message: Message) -> None:
        tries[message.body] += 1
        if message.body == b"hopeless":
            raise GiveUpError("really")
        if message.body == b"bad" or (message.body == b"shaky" and tries[b"shaky"] < 3):
            raise ZeroDivisionError
        if message.body == b"end":
            finished.set()

    job = Job(name, attempts=4, retry_s=0.01)
    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def worker(task_status: trio.TaskStatus[None]) -> None:
            await work(connection, job, handler, stop=finished, task_status=task_status)

        await nursery.start(worker)
        await _publish(connection, name, "good", "shaky", "bad", "hopeless")
        async with connection.channel() as channel:
            dead = []
            async with channel.consume(job.dead_letters) as letters:
                async for letter in letters:
                    dead.append((letter.body, letter.headers["x-first-death-reason"]))
                    letter.ack()
                    if len(dead) == 2:
                        break
            assert sorted(dead) == [(b"bad", "delivery_limit"), (b"hopeless", "rejected")]
            assert tries == {b"good": 1, b"shaky": 3, b"bad": 4, b"hopeless": 1}
            await channel.publish(b"end", routing_key=name)
    async with connect(amqp_url) as connection, connection.channel() as channel:
        assert await channel.delete_queue(name) == 0
        assert await channel.delete_queue(job.dead_letters) == 0


async def test_what_was_done_is_not_done_again(amqp_url: str, name: str, tmp_path: Path) -> None:
    done: list[bytes] = []
    last = trio.Event()

    async def handler(message: Message) -> None:
        await trio.sleep(0.01)  # long enough that duplicates meet
        done.append(message.body)
        if message.body == b"last":
            last.set()

    job = Job(name, prefetch=5)
    store = IdempotencyStore(tmp_path / "done.db")
    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def worker(task_status: trio.TaskStatus[None]) -> None:
            await work(connection, job, handler, store, stop=last, task_status=task_status)

        await nursery.start(worker)
        await _publish(connection, name, "a", "b", "a", "a", "b", "c", "a")
        await _publish(connection, name, "last")
    store.close()
    again = IdempotencyStore(tmp_path / "done.db")
    assert again.is_done("a")
    assert again.is_done("last")
    assert not again.is_done("d")
    again.close()
    assert Counter(done) == {b"a": 1, b"b": 1, b"c": 1, b"last": 1}
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.delete_queue(name)
        await channel.delete_queue(job.dead_letters)


def test_a_store_forgets_after_its_window(tmp_path: Path) -> None:
    clock = [0.0]
    store = IdempotencyStore(tmp_path / "done.db", window_s=10, now=lambda: clock[0])
    store.add("a")
    clock[0] = 9.0
    assert store.is_done("a")
    clock[0] = 10.0
    assert not store.is_done("a")
    for number in range(1000):
        store.add(str(number))
    assert store._database.execute("SELECT count(*) FROM done").fetchone() == (1000,)
    store.close()


async def test_long_work_keeps_its_lease(amqp_url: str, name: str) -> None:
    began = 0
    over = trio.Event()

    async def handler(message: Message) -> None:
        nonlocal began
        began += 1
        await trio.sleep(1.5)
        over.set()

    job = Job(name, lease_s=0.5)
    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def worker(task_status: trio.TaskStatus[None]) -> None:
            await work(connection, job, handler, stop=over, task_status=task_status)

        await nursery.start(worker)
        await _publish(connection, name, "long")
    assert began == 1
    async with connect(amqp_url) as connection, connection.channel() as channel:
        assert await channel.delete_queue(name) == 0
        await channel.delete_queue(job.dead_letters)


PROGRAM = """
import sys, trio
from clients.worker import Job, run_worker

async def handler(message):
    print("began", message.body.decode(), flush=True)
    await trio.sleep(0.5)
    print("ended", message.body.decode(), flush=True)

trio.run(run_worker, sys.argv[1], Job(sys.argv[2], prefetch=1), handler)
"""


async def test_sigterm_finishes_what_is_under_way(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        job = Job(name)
        await job.declare(channel)
        await _publish(connection, name, "1", "2")
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", PROGRAM, amqp_url, name],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
        )
        assert process.stdout is not None
        output = b""
        while b"began 1" not in output:
            output += await process.stdout.receive_some()
        process.send_signal(signal.SIGTERM)
        async for data in process.stdout:
            output += data
        assert await process.wait() == 0
        assert output == b"began 1\nended 1\n"
        async with channel.consume(name) as messages:
            message = await anext(messages)
            assert message.body == b"2"
            message.ack()
        await channel.delete_queue(name)
        await channel.delete_queue(job.dead_letters)
