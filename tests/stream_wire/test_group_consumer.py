"""A member of a consumer group: what it reads, commits, and lets go of."""

import time

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from clients.stream_errors import RefusedError
from clients.streams import connect
from tests.support.waiting import eventually

POLL_S = 0.02
DEADLINE_S = 30.0


@pytest.fixture
def client(door):
    door.call(door.streams.declare, "s", 2)
    with connect(door.url) as client:
        yield client


@pytest.fixture
def join(client):
    """Members that send heartbeats when they are polled, so that nothing depends on a thread."""
    joined = []

    def join(**options):
        options.setdefault("heartbeat_s", None)
        joined.append(client.group("g", ["s"], **options))
        return joined[-1]

    yield join
    for member in joined:
        member.close()


def fill(door, partition, *values):
    count = len(values)
    door.append("s", encode_chunk([None] * count, values, [b""] * count, 1), partition)


def poll_until(condition, *members):
    """Poll them in turn until this is so; the values that came."""
    values = []
    deadline = time.monotonic() + DEADLINE_S
    while not condition(values):
        assert time.monotonic() < deadline, values
        for member in members:
            polled = member.poll(POLL_S)
            values += [record.value for record in polled.records()] if polled else []
    return values


def read(count, *members):
    """The next values, so many that one too many or one twice would show."""
    return sorted(poll_until(lambda values: len(values) >= count, *members))


def assigned(count, member, *others):
    return poll_until(lambda _: len(member.assigned) == count, member, *others)


def s(number):
    return wire.Partition("s", number)


def test_a_member_alone_reads_every_partition_and_commits(door, client, join):
    fill(door, 0, b"a", b"b")
    fill(door, 1, b"c")
    member = join()
    assert read(3, member) == [b"a", b"b", b"c"]
    member.commit()
    offsets = {partition: each.offset for partition, each in client.committed("g").items()}
    assert offsets == {s(0): 2, s(1): 1}


def test_the_next_member_reads_on_where_the_last_committed(door, join):
    fill(door, 0, b"a", b"b")
    first = join()
    assert read(2, first) == [b"a", b"b"]
    first.commit({s(0): 1})
    first.close()
    assert read(1, join()) == [b"b"]


def test_without_a_commit_reading_starts_where_it_was_told_to(door, join):
    fill(door, 0, b"old")
    member = join(start="next")
    assert assigned(2, member) == []
    fill(door, 0, b"new")
    assert read(1, member) == [b"new"]


def test_partitions_that_move_are_revoked_before_another_has_them(door, join):
    events = []
    first = join(
        label="one",
        on_revoked=lambda gone: (first.commit(), events.append(("revoked", gone))),
    )
    fill(door, 0, b"a")
    fill(door, 1, b"b")
    assert read(2, first) == [b"a", b"b"]
    second = join(label="two", on_assigned=lambda new: events.append(("assigned", new)))
    assert second.poll(0) is None
    assert second.assigned == ()
    assert assigned(1, second, first) == []  # what the first committed is not read again
    (moved,) = second.assigned
    assert events == [("revoked", (moved,)), ("assigned", (moved,))]
    assert sorted(first.assigned + second.assigned) == [s(0), s(1)]
    fill(door, 0, b"c")
    fill(door, 1, b"d")
    assert read(2, first, second) == [b"c", b"d"]


def test_a_member_that_was_given_up_loses_its_partitions_and_joins_anew(door, client, join):
    lost = []
    member = join(on_lost=lost.append)
    assert assigned(2, member) == []
    name = member.core.membership.assignment.member
    door.call(door.streams.groups["g"].leave, name, 0)
    with pytest.raises(RefusedError, match="UNKNOWN_MEMBER"):
        member.commit({s(0): 0})
    assert poll_until(lambda _: lost, member) == []
    assert lost == [(s(0), s(1))]
    assert member.assigned == (s(0), s(1))
    assert member.core.membership.assignment.member != name


def test_a_member_that_another_process_replaced_is_fenced(join):
    first = join(instance="i")
    assert assigned(2, first) == []
    second = join(instance="i")
    assert assigned(2, second) == []
    with pytest.raises(RefusedError, match="MEMBER_FENCED"):
        first.poll(0)
    assert second.assigned == (s(0), s(1))


def test_an_offset_that_retention_took_is_put_where_reading_starts(door, client, join):
    fill(door, 0, b"a", b"b")
    client.reset_offsets("g", {s(0): 0})
    door.streams.streams["s"][0].first_offset = 2
    fill(door, 0, b"c")
    assert read(1, join()) == [b"c"]


def test_a_thread_keeps_the_membership_alive(door, client):
    member = client.group("g", ["s"], heartbeat_s=0.01)
    try:
        beats = []
        group = door.streams.groups["g"]
        heartbeat = group.heartbeat
        group.heartbeat = lambda *args, **options: beats.append(1) or heartbeat(*args, **options)
        eventually(lambda: len(beats) > 3, "heartbeats")
    finally:
        member.close()
    assert client.describe_group("g").members == ()


def test_a_group_is_told_with_its_members_and_lags(door, client, join):
    fill(door, 0, b"a", b"b")
    member = join(label="one")
    assert read(2, member) == [b"a", b"b"]
    member.commit({s(0): 1})
    (listed,) = client.groups()
    assert (listed.group, listed.members) == ("g", 1)
    described = client.describe_group("g")
    assert described.members[0].assigned == (s(0), s(1))
    (offset,) = described.offsets
    assert offset.next_offset - offset.committed.offset == 1
    with pytest.raises(RefusedError, match="GROUP_NOT_EMPTY"):
        client.reset_offsets("g", {s(0): 0})
    with pytest.raises(RefusedError, match="GROUP_NOT_FOUND"):
        client.describe_group("unknown")


def test_offsets_may_be_committed_by_a_transaction(door, client, join):
    fill(door, 0, b"a")
    member = join()
    assert read(1, member) == [b"a"]
    transactions = client.transactions("job")
    transactions.commit(transactions.key(), (), [member.transaction_part()])
    assert client.committed("g")[s(0)].offset == 1


def test_the_end_of_a_block_leaves_the_group_and_commits_nothing(door, client):
    fill(door, 0, b"a")
    with client.group("g", ["s"], heartbeat_s=None) as member:
        assert read(1, member) == [b"a"]
        assert len(client.describe_group("g").members) == 1
    assert client.describe_group("g").members == ()
    assert client.committed("g") == {}
