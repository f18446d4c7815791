"""Listening where the operator says."""

import pytest
import trio

from broker.startup import StartupError, open_listeners


async def reaches(host, port, listeners):
    async def serve_one(listener):
        async with await listener.accept() as stream:
            await stream.send_all(b"hello")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(serve_one, listener)
            async with await trio.open_tcp_stream(host, port) as client:
                answer = await client.receive_some()
            nursery.cancel_scope.cancel()
    return answer == b"hello"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_ipv6_wildcard_serves_both_families_on_one_port(host):
    listeners = await open_listeners("::", 0, purpose="AMQP")
    ports = {listener.socket.getsockname()[1] for listener in listeners}
    assert len(ports) == 1
    try:
        assert await reaches(host, ports.pop(), listeners)
    finally:
        for listener in listeners:
            await listener.aclose()


async def test_a_port_that_is_taken_in_one_family_is_refused_and_held_in_neither():
    (taken,) = await open_listeners("127.0.0.1", 0, purpose="AMQP")
    port = taken.socket.getsockname()[1]
    with pytest.raises(StartupError, match=f"cannot listen for AMQP on :::{port}: Address"):
        await open_listeners("::", port, purpose="AMQP")
    for listener in await open_listeners("::1", port, purpose="AMQP"):
        await listener.aclose()
    await taken.aclose()
