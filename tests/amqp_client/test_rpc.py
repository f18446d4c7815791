"""Calls over direct reply-to and over reply queues, and what can go wrong with them."""

import datetime as dt

import pytest
import trio

from clients.rpc import (
    NobodyServesError,
    RemoteError,
    RpcTimeoutError,
    rpc_client,
    serve,
)
from clients.trio_client import connect


async def slow_square(number: int) -> int:
    await trio.sleep(0.01)
    return number * number


async def forever() -> None:
    await trio.sleep_forever()


def divide(dividend: float, *, by: float) -> float:
    return dividend / by


FUNCTIONS = {
    "add": lambda a, b: a + b,
    "echo": lambda value: value,
    "divide": divide,
    "slow_square": slow_square,
    "forever": forever,
    "object": object,
}


@pytest.mark.parametrize("reply_queue", [False, True])
async def test_calls_come_back(amqp_url: str, name: str, reply_queue: bool) -> None:
    async with (
        connect(amqp_url) as there,
        connect(amqp_url) as here,
        trio.open_nursery() as nursery,
    ):
        stop = trio.Event()

        async def server(task_status: trio.TaskStatus[None]) -> None:
            await serve(there, name, FUNCTIONS, stop=stop, task_status=task_status)

        await nursery.start(server)
        async with rpc_client(here, name, reply_queue=reply_queue) as rpc:
            assert await rpc.call("add", 2, 3, timeout=5) == 5
            assert await rpc.call("divide", 1, by=4) == 0.25
            now = dt.datetime.now(dt.UTC)
            for value in (None, b"bytes", "text", [1, {"a": 1.5}], 2**70, now, "x" * 300_000):
                assert await rpc.call("echo", value) == value
            answers = {}

            async def ask(number: int) -> None:
                answers[number] = await rpc.call("slow_square", number)

            async with trio.open_nursery() as calls:
                for number in range(100):
                    calls.start_soon(ask, number)
            assert answers == {number: number * number for number in range(100)}

            with pytest.raises(RemoteError, match="ZeroDivisionError: division by zero") as caught:
                await rpc.call("divide", 1, by=0)
            assert caught.value.type_name == "ZeroDivisionError"
            with pytest.raises(RemoteError, match="no function 'missing'"):
                await rpc.call("missing")
            with pytest.raises(RemoteError, match="TypeError"):
                await rpc.call("add", 1)
            with pytest.raises(RemoteError):
                await rpc.call("object")  # which CBOR does not know
            with pytest.raises(RpcTimeoutError, match="no answer"):
                await rpc.call("forever", timeout=0.1)
            assert await rpc.call("add", "still", " there") == "still there"
        nursery.cancel_scope.cancel()


async def test_no_more_run_at_a_time_than_allowed(amqp_url: str, name: str) -> None:
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.005)
        running -= 1

    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def server(task_status: trio.TaskStatus[None]) -> None:
            await serve(connection, name, {"work": work}, concurrency=3, task_status=task_status)

        await nursery.start(server)
        async with rpc_client(connection, name) as rpc, trio.open_nursery() as calls:
            for _ in range(30):
                calls.start_soon(rpc.call, "work")
        nursery.cancel_scope.cancel()
    assert most == 3


async def test_a_server_that_stops_answers_what_it_has_begun(amqp_url: str, name: str) -> None:
    begun, go_on, stop = trio.Event(), trio.Event(), trio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def server(task_status: trio.TaskStatus[None]) -> None:
            await serve(connection, name, {"work": work}, stop=stop, task_status=task_status)

        await nursery.start(server)
        async with rpc_client(connection, name) as rpc, trio.open_nursery() as calls:

            async def ask() -> None:
                assert await rpc.call("work") == "done"

            calls.start_soon(ask)
            await begun.wait()
            stop.set()
            with pytest.raises(RpcTimeoutError):  # it takes no more
                await rpc.call("work", timeout=0.2)
            go_on.set()


async def test_nobody_serves(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, rpc_client(connection, name) as rpc:
        with pytest.raises(NobodyServesError):
            await rpc.call("add", 1, 2)


async def test_requests_that_are_none_hurt_nobody(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, trio.open_nursery() as nursery:

        async def server(task_status: trio.TaskStatus[None]) -> None:
            await serve(connection, name, FUNCTIONS, task_status=task_status)

        await nursery.start(server)
        async with connection.channel() as channel:
            for body in (b"", b"\xff", b"\x83\x01\x02", b"\x80"):
                await channel.publish(body, routing_key=name)
        async with rpc_client(connection, name) as rpc:
            assert await rpc.call("add", 1, 1) == 2
        nursery.cancel_scope.cancel()
