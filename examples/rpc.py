"""Calls: functions of another process, as if they were here.

A server and its caller, with a connection each, as two programs would have. Ten calls run at the
same time; a function that raises, one that is too slow and one that nobody has are errors here.

Run it with `python examples/rpc.py` while the broker runs (`make run`).
"""

import math
import os

import trio

from clients.rpc import RemoteError, RpcTimeoutError, rpc_client, serve
from clients.trio_client import connect

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
SERVICE = "examples.calculator"


async def slow_sqrt(number: float) -> float:
    await trio.sleep(0.1)
    return math.sqrt(number)


FUNCTIONS = {
    "add": lambda a, b: a + b,
    "divide": lambda a, b: a / b,
    "slow_sqrt": slow_sqrt,
    "sleep": trio.sleep,
}


async def call_them() -> None:
    async with connect(URL) as connection, rpc_client(connection, SERVICE) as rpc:
        print("2 + 3 =", await rpc.call("add", 2, 3))

        roots: dict[int, float] = {}

        async def root_of(number: int) -> None:
            roots[number] = await rpc.call("slow_sqrt", number)

        async with trio.open_nursery() as calls:
            for number in range(10):
                calls.start_soon(root_of, number * number)
        print("ten roots at once:", *(f"{roots[square]:g}" for square in sorted(roots)))

        for function, *arguments in (("divide", 1, 0), ("multiply", 2, 3)):
            try:
                await rpc.call(function, *arguments)
            except RemoteError as error:
                print(f"{function}: {error}")
        try:
            await rpc.call("sleep", 60, timeout=0.5)
        except RpcTimeoutError as error:
            print(f"sleep: {error}")


async def main() -> None:
    async with connect(URL) as connection, trio.open_nursery() as server:
        await server.start(serve, connection, SERVICE, FUNCTIONS)
        await call_them()
        server.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
