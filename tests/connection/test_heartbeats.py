"""What a client hears of the broker when neither has much to say."""

import pytest
import trio

from tests.connection.fakes import Place

INTERVAL_S = 2
LOOK_S = 0.05


async def silences(client, seconds):
    """How long the client heard nothing, again and again."""
    found, silent_since = [], trio.current_time()
    end = silent_since + seconds
    while trio.current_time() < end:
        await trio.sleep(LOOK_S)
        if client.received():
            found.append(trio.current_time() - silent_since)
            silent_since = trio.current_time()
    return found


async def test_an_idle_client_hears_the_broker_every_half_interval(nursery, autojump_clock):
    client = await Place(nursery).client(heartbeat_s=INTERVAL_S)
    nursery.start_soon(beat, client)
    found = await silences(client, 10 * INTERVAL_S)
    assert len(found) >= 19
    assert max(found) <= INTERVAL_S / 2 + 2 * LOOK_S


@pytest.mark.parametrize("after_s", [0.1, 0.5, 0.9])
async def test_an_answer_puts_no_heartbeat_off(nursery, autojump_clock, after_s):
    client = await Place(nursery).client(heartbeat_s=INTERVAL_S)
    nursery.start_soon(beat, client)
    await trio.sleep(after_s)
    client.declare("q")
    found = await silences(client, 3 * INTERVAL_S)
    assert max(found) <= INTERVAL_S / 2 + 2 * LOOK_S


async def test_heartbeats_do_not_pile_up_for_a_client_that_does_not_read(nursery, autojump_clock):
    client = await Place(nursery).client(heartbeat_s=INTERVAL_S)
    client.transport.deaf = True
    nursery.start_soon(beat, client)
    await trio.sleep(10 * INTERVAL_S)
    assert client.transport.outbox.size <= 8


async def beat(client):
    while True:
        client.write(b"\x08\x00\x00\x00\x00\x00\x00\xce")
        await trio.sleep(INTERVAL_S / 2)
