"""Ids of idempotent producers belong to the user who asked for them."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer, encode_chunk
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from clients.streams import StreamClient, connect
from tests.security.conftest import House

pytestmark = pytest.mark.leveret_only


def append(client: StreamClient, stream: str, producer: Producer) -> bool:
    """Whether the record was taken for one that is there already."""
    chunk = encode_chunk([None], [b"x"], [b""], 0, producer=producer)
    answer = client.connection.ask(wire.Append(stream, 0, chunk), wire.Appended)
    return answer.duplicate


def allocated(client: StreamClient) -> wire.ProducerAllocated:
    return client.connection.ask(wire.AllocateProducer("p"), wire.ProducerAllocated)


def test_nobody_sends_with_the_producer_id_of_another_user(house: House) -> None:
    users = [house.add_user() for _ in range(2)]
    for user in users:
        house.permit(user, ".*", ".*", ".*")
    arguments = {"x-queue-type": "stream"}
    house.admin_channel().declare_queue("s", durable=True, arguments=arguments)
    with connect(house.url(users[0])) as victim, connect(house.url(users[1])) as attacker:
        pid, epoch = allocated(victim)
        assert not append(victim, "s", Producer(pid, epoch, 0))
        for stolen in (Producer(pid, epoch, 1), Producer(pid, epoch + 1, 0)):
            with pytest.raises(RefusedError) as refused:
                append(attacker, "s", stolen)
            assert refused.value.status == Status.ACCESS_REFUSED
        assert not append(victim, "s", Producer(pid, epoch, 1)), "it is new"
        mine, began = allocated(attacker)
        assert not append(attacker, "s", Producer(mine, began, 0))
