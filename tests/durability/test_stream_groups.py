"""Groups through restarts and churn: offsets stay, and no record is skipped."""

from random import Random

import pytest

from tests.durability.life import Life
from tests.support.streams import STREAM, Publishing, bodies, join, numbers, offsets, take
from tests.support.wire import WireChannel

STREAM_NAME = "s"
PARTITIONS = 4


def declare(life: Life, partitions: int = 1) -> None:
    arguments = {**STREAM, "x-partitions": partitions}
    life.channel().declare_queue(STREAM_NAME, durable=True, arguments=arguments)


def fill(life: Life, payloads: list[bytes]) -> None:
    Publishing(life.channel()).publish("", STREAM_NAME, *payloads)


@pytest.mark.parametrize("endings", [("kill",), ("stop",), ("kill", "stop", "kill")], ids=str)
def test_a_group_goes_on_where_it_was_after_a_restart(life: Life, endings: tuple[str, ...]) -> None:
    declare(life)
    fill(life, numbers(10))
    member = life.channel()
    tag = join(member, STREAM_NAME, stream_offset="first")
    got = take(member, 10, ack=False)
    for record in (*got[:4], *got[6:]):
        member.ack(record.delivery_tag)
    member.cancel(tag)
    life.confirming().barrier()
    life.restart(*endings)
    member = life.channel()
    join(member, STREAM_NAME)
    again = take(member, 6)
    assert offsets(again) == [4, 5, 6, 7, 8, 9]
    assert all(record.redelivered for record in again)


def test_a_broker_that_stops_keeps_the_acks_of_members_that_are_still_there(life: Life) -> None:
    declare(life)
    fill(life, numbers(10))
    member = life.channel()
    join(member, STREAM_NAME, stream_offset="first", prefetch=5)
    take(member, 5)
    life.restart("stop")
    member = life.channel()
    join(member, STREAM_NAME)
    assert bodies(take(member, 5)) == numbers(5, 5)


def test_where_a_group_begins_is_known_after_a_crash(life: Life) -> None:
    """It began with what came next; what came then and was not acked must not be skipped."""
    declare(life)
    fill(life, numbers(5))
    member = life.channel()
    join(member, STREAM_NAME)
    fill(life, numbers(5, 5))
    assert bodies(take(member, 5, ack=False)) == numbers(5, 5)
    life.restart("kill")
    member = life.channel()
    join(member, STREAM_NAME)
    assert bodies(take(member, 5)) == numbers(5, 5)


class Churn:
    """Members that come, go, are lost, ack and give back as a seed says."""

    def __init__(self, life: Life, seed: int) -> None:
        self.life = life
        self.random = Random(seed)
        self.members: list[WireChannel] = []
        self.held: dict[WireChannel, list[tuple[int, bytes]]] = {}
        self.tags: dict[WireChannel, str] = {}
        self.published = 0
        self.acked: set[bytes] = set()

    def publish(self) -> None:
        count = self.random.randint(1, 40)
        fill(self.life, numbers(count, self.published))
        self.published += count

    def join(self) -> None:
        member = self.life.channel()
        prefetch = self.random.choice([3, 20, 100])
        self.tags[member] = join(member, STREAM_NAME, stream_offset="first", prefetch=prefetch)
        self.members.append(member)
        self.held[member] = []

    def read(self, member: WireChannel) -> None:
        """What has come until now."""
        member.qos(1)
        for _ in member.pending():
            record = member.delivery()
            self.held[member].append((record.delivery_tag, record.body))

    def settle(self, member: WireChannel) -> None:
        """Some of what it holds, in any order."""
        held = self.held[member]
        self.random.shuffle(held)
        for _ in range(self.random.randint(0, len(held))):
            tag, body = held.pop()
            if self.random.random() < 0.1:
                member.nack(tag)
            else:
                member.ack(tag)
                self.acked.add(body)

    def leave(self, member: WireChannel) -> None:
        if self.random.random() < 0.5:
            member.cancel(self.tags[member])
            member.conn.close()
        else:
            member.conn.reset()
        self.members.remove(member)

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            self.publish()
        elif choice < 0.45 and len(self.members) < PARTITIONS + 1:
            self.join()
        elif choice < 0.6 and self.members:
            self.leave(self.random.choice(self.members))
        elif self.members:
            member = self.random.choice(self.members)
            self.read(member)
            self.settle(member)

    def finish(self) -> None:
        """The last member gets whatever is not done with; if anything is skipped it never comes."""
        while self.members:
            self.leave(self.members[0])
        self.join()
        last = self.members[0]
        while len(self.acked) < self.published:
            record = last.delivery()
            last.ack(record.delivery_tag)
            self.acked.add(record.body)


@pytest.mark.parametrize("seed", range(3))
def test_no_record_is_skipped_while_members_come_and_go(life: Life, seed: int) -> None:
    churn = Churn(life, seed)
    declare(life, PARTITIONS)
    for _ in range(80):
        churn.step()
    churn.finish()
    assert churn.acked == set(numbers(churn.published))


@pytest.mark.parametrize("seed", range(2))
def test_no_record_is_skipped_when_the_broker_is_killed_meanwhile(life: Life, seed: int) -> None:
    churn = Churn(life, seed)
    declare(life, PARTITIONS)
    for _ in range(3):
        for _ in range(30):
            churn.step()
        churn.life.restart("kill")
        churn.members.clear()
    churn.finish()
    assert churn.acked == set(numbers(churn.published))
