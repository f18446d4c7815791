"""Clients side by side on this broker: publish 1 KB with confirms, consume with acks.

    python -m benchmarks.clients [--messages 30000] [--rounds 3]

Every client does the same work in a process of its own, one after the other, in turns: publish with
up to 1000 unconfirmed, then consume with prefetch 500, acking each message. The queue is in memory,
so that the clients are measured and not the disk. Each is written the fastest way that its
documentation shows: pika on its asynchronous connection, aio-pika with publishes gathered in
windows, py-amqp with confirms that are drained in windows. What counts on a busy machine is the CPU
time of the client; the best round of each is shown.
"""

# ruff: noqa: PLC0415 - a client is loaded only in the process that measures it

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

BODY = bytes(1024)
WINDOW = 1000
PREFETCH = 500
QUEUE = "client-benchmark"


class Watch:
    """Wall clock and CPU time of this process."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu_s()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, _cpu_s() - self._cpu


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


Figures = dict[str, tuple[float, float]]


def leveret_trio(url: str, count: int) -> Figures:
    import trio

    from clients.trio_client import connect

    async def main() -> Figures:
        async with connect(url) as connection, connection.channel() as channel:
            await channel.declare_queue(QUEUE, durable=False)
            watch = Watch()
            async with channel.publishing(WINDOW) as out:
                for _ in range(count):
                    await out.send(BODY, routing_key=QUEUE)
            published = watch.read()
            watch = Watch()
            left = count
            async with channel.consume(QUEUE, prefetch=PREFETCH) as messages:
                async for message in messages:
                    assert len(message.body) == 1024
                    message.ack()
                    left -= 1
                    if not left:
                        break
            await channel.get(QUEUE)  # behind the acks
            return {"publish": published, "consume": watch.read()}

    return trio.run(main)


def leveret_blocking(url: str, count: int) -> Figures:
    from clients.blocking import connect

    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE, durable=False)
        watch = Watch()
        with channel.publishing(WINDOW) as out:
            for _ in range(count):
                out.send(BODY, routing_key=QUEUE)
        published = watch.read()
        watch = Watch()
        left = count
        with channel.consume(QUEUE, prefetch=PREFETCH) as messages:
            for message in messages:
                assert len(message.body) == 1024
                message.ack()
                left -= 1
                if not left:
                    break
        channel.get(QUEUE)
        return {"publish": published, "consume": watch.read()}


def with_pika(url: str, count: int) -> Figures:  # noqa: C901 - one callback per step
    import pika

    figures: Figures = {}
    state = {"sent": 0, "confirmed": 0, "taken": 0}
    properties = pika.BasicProperties(delivery_mode=2)

    def opened(connection) -> None:
        connection.channel(on_open_callback=ready)

    def ready(channel) -> None:
        channel.queue_declare(QUEUE, callback=lambda _: start(channel))

    def start(channel) -> None:
        channel.confirm_delivery(lambda frame: confirmed(channel, frame.method))
        state["watch"] = Watch()
        fill(channel)

    def fill(channel) -> None:
        while state["sent"] < count and state["sent"] - state["confirmed"] < WINDOW:
            channel.basic_publish("", QUEUE, BODY, properties)
            state["sent"] += 1

    def confirmed(channel, method) -> None:
        if method.multiple:
            state["confirmed"] = method.delivery_tag
        else:
            state["confirmed"] += 1
        if state["confirmed"] == count:
            figures["publish"] = state["watch"].read()
            channel.basic_qos(prefetch_count=PREFETCH, callback=lambda _: consume(channel))
        else:
            fill(channel)

    def consume(channel) -> None:
        state["watch"] = Watch()
        channel.basic_consume(QUEUE, delivered)

    def delivered(channel, method, _properties, body) -> None:
        assert len(body) == 1024
        channel.basic_ack(method.delivery_tag)
        state["taken"] += 1
        if state["taken"] == count:
            channel.basic_get(QUEUE, lambda *_: None)
            channel.queue_declare(QUEUE, passive=True, callback=lambda _: done(channel))

    def done(channel) -> None:
        figures["consume"] = state["watch"].read()
        channel.connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=opened,
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    return figures


def with_aio_pika(url: str, count: int) -> Figures:
    import aio_pika

    async def main() -> Figures:
        connection = await aio_pika.connect(url)
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue(QUEUE)
        exchange = channel.default_exchange
        watch = Watch()
        message = aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        for start in range(0, count, WINDOW):
            some = min(WINDOW, count - start)
            await asyncio.gather(*[exchange.publish(message, QUEUE) for _ in range(some)])
        published = watch.read()
        await channel.set_qos(prefetch_count=PREFETCH)
        watch = Watch()
        left = count
        done = asyncio.Event()

        async def delivered(message) -> None:
            nonlocal left
            assert len(message.body) == 1024
            await message.ack()
            left -= 1
            if not left:
                done.set()

        tag = await queue.consume(delivered)
        await done.wait()
        await queue.cancel(tag)
        consumed = watch.read()
        await connection.close()
        return {"publish": published, "consume": consumed}

    return asyncio.run(main())


def with_py_amqp(url: str, count: int) -> Figures:
    import amqp

    parts = urlsplit(url)
    connection = amqp.Connection(f"{parts.hostname}:{parts.port}", "guest", "guest")
    connection.connect()
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=False, auto_delete=False)
    state = {"confirmed": 0, "taken": 0}

    def confirmed(tag: int, multiple: bool) -> None:  # noqa: FBT001 - the library's
        state["confirmed"] = tag if multiple else state["confirmed"] + 1

    channel.confirm_select()
    channel.events["basic_ack"].add(confirmed)
    watch = Watch()
    for number in range(count):
        while number - state["confirmed"] >= WINDOW:
            connection.drain_events()
        message = amqp.Message(BODY, delivery_mode=2)
        channel.basic_publish(message, "", QUEUE)
    while state["confirmed"] < count:
        connection.drain_events()
    published = watch.read()

    def delivered(message) -> None:
        assert len(message.body) == 1024
        channel.basic_ack(message.delivery_tag)
        state["taken"] += 1

    channel.basic_qos(0, PREFETCH, a_global=False)
    watch = Watch()
    channel.basic_consume(QUEUE, callback=delivered)
    while state["taken"] < count:
        connection.drain_events()
    channel.basic_get(QUEUE)
    consumed = watch.read()
    connection.close()
    return {"publish": published, "consume": consumed}


CLIENTS: dict[str, Callable[[str, int], Figures]] = {
    "leveret (Trio)": leveret_trio,
    "leveret (blocking)": leveret_blocking,
    "pika": with_pika,
    "aio-pika": with_aio_pika,
    "py-amqp": with_py_amqp,
}


def run_one(client: str, url: str, count: int) -> Figures:
    """In a process of its own, so that none inherits another's garbage."""
    command = [sys.executable, "-m", "benchmarks.clients", "--client", client, "--url", url]
    command += ["--messages", str(count)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: tuple(pair) for name, pair in json.loads(output).items()}


def compare(url: str, count: int, rounds: int) -> None:
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for _ in range(rounds):
        for client in CLIENTS:
            for work, (wall_s, cpu_s) in run_one(client, url, count).items():
                had = best.get((client, work), (float("inf"), float("inf")))
                best[client, work] = (min(had[0], wall_s), min(had[1], cpu_s))
    for work in ("publish", "consume"):
        print(f"{work:20} {'messages/s':>12} {'CPU per message':>18}")
        for client in CLIENTS:
            wall_s, cpu_s = best[client, work]
            print(f"  {client:18} {count / wall_s:12,.0f} {cpu_s / count * 1e6:15.1f} µs")
        others = [
            pair
            for (client, kind), pair in best.items()
            if kind == work and not client.startswith("leveret")
        ]
        ours = best["leveret (Trio)", work]
        wall = min(pair[0] for pair in others) / ours[0]
        cpu = min(pair[1] for pair in others) / ours[1]
        print(f"  the Trio client against the fastest of the others: {wall:.1f}x, CPU {cpu:.1f}x\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=list(CLIENTS), help="only this one, as JSON")
    parser.add_argument("--url", help="of a broker that runs; otherwise one is started")
    options = parser.parse_args()
    if options.client:
        print(json.dumps(CLIENTS[options.client](options.url, options.messages)))
        return
    if options.url:
        compare(options.url, options.messages, options.rounds)
        return
    from tests.support.process import BrokerProcess

    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        compare(broker.amqp_url(), options.messages, options.rounds)


if __name__ == "__main__":
    main()
