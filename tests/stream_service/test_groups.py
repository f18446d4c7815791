"""Consumer groups through the stream protocol, and together with AMQP's consumers."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Operation, Status
from clients.stream_errors import RefusedError
from tests.support.frames import Queue
from tests.support.streams import bodies, fill, join, numbers, offsets, partitions, take

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def stream(declare):
    return declare(partitions=2)


@pytest.fixture
def group(stream):
    return f"group of {stream}"


@pytest.fixture
def ask(client):
    kinds = dict(wire.MESSAGES.values())

    def ask(request):
        return client.connection.ask(request, kinds[type(request)])

    return ask


def refusal(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    return caught.value.status


def at(stream, number, offset, metadata=""):
    return wire.Position(wire.Partition(stream, number), offset, metadata)


def committed(ask, group):
    found = ask(wire.FetchOffsets(group, ())).offsets
    return {each.partition.number: each.offset for each in found}


def test_members_over_the_protocol_and_over_amqp_share_a_group(ask, scene, channel, stream, group):
    join(channel, stream, stream_offset="first")
    told = ask(wire.Join(group, "m", "", "", (stream,)))
    told = ask(wire.Heartbeat(group, told.member, told.generation, ()))
    [mine] = told.assigned
    fill(scene, stream, numbers(20))
    got = take(channel, 10)
    assert set(partitions(got)) == {1 - mine.number}
    ask(wire.Leave(group, told.member))
    assert set(partitions(take(channel, 10))) == {mine.number}


def test_acks_over_amqp_are_committed_offsets(ask, scene, channel, stream, group):
    tag = join(channel, stream, stream_offset="first")
    fill(scene, stream, numbers(20))
    got = take(channel, 20, ack=False)
    for record in got:
        if record.headers["x-stream-offset"] != 3:
            channel.ack(record.delivery_tag)
    channel.cancel(tag)
    assert committed(ask, group) == {0: 3, 1: 3}


def test_a_zombie_cannot_commit(ask, stream, group):
    zombie = ask(wire.Join(group, "m", "", "one", (stream,)))
    present = ask(wire.Join(group, "m", "", "one", (stream,)))
    commit = wire.CommitOffsets(group, zombie.member, zombie.generation, (at(stream, 0, 5),))
    assert refusal(ask, commit) == Status.MEMBER_FENCED
    ask(commit._replace(member=present.member, generation=present.generation))
    assert committed(ask, group) == {0: 5}
    stale = commit._replace(member=present.member, generation=present.generation + 1)
    assert refusal(ask, stale) == Status.STALE_GENERATION
    ask(wire.Leave(group, present.member))
    again = commit._replace(member=present.member, generation=present.generation)
    assert refusal(ask, again) == Status.UNKNOWN_MEMBER
    assert committed(ask, group) == {0: 5}


def test_a_partition_that_is_anothers_cannot_be_committed(ask, channel, stream, group):
    join(channel, stream)
    told = ask(wire.Join(group, "m", "", "", (stream,)))
    told = ask(wire.Heartbeat(group, told.member, told.generation, ()))
    [mine] = told.assigned
    theirs = at(stream, 1 - mine.number, 5)
    commit = wire.CommitOffsets(group, told.member, told.generation, (theirs,))
    assert refusal(ask, commit) == Status.NOT_ASSIGNED


def test_a_reset_moves_a_group_without_members(ask, scene, channel, stream, group):
    fill(scene, stream, numbers(20))
    tag = join(channel, stream, stream_offset="first")
    take(channel, 20)
    reset = wire.ResetOffsets(group, (at(stream, 0, 8), at(stream, 1, 0)))
    assert refusal(ask, reset) == Status.GROUP_NOT_EMPTY
    channel.cancel(tag)
    ask(reset)
    join(channel, stream)
    got = take(channel, 12)
    assert sorted(offsets(got)) == sorted([8, 9, *range(10)])
    assert set(bodies(got)) <= set(numbers(20))


def test_a_reset_to_where_nothing_is_is_refused(ask, stream, group):
    reset = wire.ResetOffsets(group, (at(stream, 2, 0),))
    assert refusal(ask, reset) == Status.PARTITION_NOT_FOUND


def test_a_group_tells_of_its_members_and_how_far_they_are_behind(
    ask, scene, channel, stream, group
):
    fill(scene, stream, numbers(20))
    ask(wire.ResetOffsets(group, (at(stream, 0, 4, "note"), at(stream, 1, 10))))
    told = ask(wire.Join(group, "m", "", "inst", (stream,)))
    found = ask(wire.DescribeGroup(group))
    assert found.generation == told.generation
    [member] = found.members
    assert (member.member, member.instance, member.streams) == (told.member, "inst", (stream,))
    assert member.assigned == told.assigned
    lags = [each.next_offset - each.committed.offset for each in found.offsets]
    assert lags == [6, 0]
    assert found.offsets[0].committed.metadata == "note"


def test_groups_are_listed(client, ask, stream, group):
    told = ask(wire.Join(group, "m", "", "", (stream,)))
    found = client.connection.ask(wire.Empty(), wire.GroupList, Operation.LIST_GROUPS)
    assert wire.GroupListed(group, told.generation, 1) in found.groups


def test_what_is_not_there_is_refused(ask, stream, group):
    assert refusal(ask, wire.DescribeGroup(group)) == Status.GROUP_NOT_FOUND
    assert refusal(ask, wire.Heartbeat(group, "m", 1, ())) == Status.UNKNOWN_MEMBER
    unknown = wire.Join(group, "m", "", "", (f"{stream}-not",))
    assert refusal(ask, unknown) == Status.STREAM_NOT_FOUND
    assert ask(wire.FetchOffsets(group, ())).offsets == ()


def test_a_deleted_stream_takes_its_offsets_along(ask, channel, stream, group):
    ask(wire.ResetOffsets(group, (at(stream, 0, 4),)))
    channel.rpc(Queue.Delete(queue=stream))
    assert committed(ask, group) == {}
