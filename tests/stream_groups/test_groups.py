"""What a consumer group promises its members, and what it refuses."""

import pytest

from queues.stream.group_errors import (
    FencedMemberError,
    GroupFullError,
    GroupNotEmptyError,
    InvalidCommitError,
    NotAssignedError,
    OffsetUnstableError,
    StaleGenerationError,
    UnknownMemberError,
    UnknownRecordError,
)
from queues.stream.group_records import Position, Record
from queues.stream.groups import (
    MEMBERS_MAX,
    METADATA_CHARACTERS_MAX,
    ConsumerGroup,
    GroupOptions,
    load_groups,
)
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import Decision, GroupPart, Marker, TransactionKey, Vote

SESSION_MS = 100
RELEASE_MS = 250
KEY = TransactionKey("query", 0, 1)


def part(number):
    return PartitionId("s", number)


def parts(*numbers):
    return frozenset(map(part, numbers))


def new_group(partitions=4):
    group = ConsumerGroup("g", GroupOptions(SESSION_MS, RELEASE_MS))
    group.set_partitions("s", partitions, 0)
    return group


def at(number, offset=7, metadata=""):
    return {part(number): Position(offset, metadata)}


def test_a_lone_member_has_all_partitions():
    group = new_group()
    told = group.join("c", {"s"}, 0)
    assert told.assigned == parts(0, 1, 2, 3)
    assert not told.leaving


def test_a_newcomer_gets_nothing_before_the_old_owner_let_go():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    second = group.join("c", {"s"}, 1)
    assert not second.assigned
    first = group.heartbeat(first.member, first.generation, 2)
    assert (first.assigned, first.leaving) == (parts(0, 1), parts(2, 3))
    second = group.heartbeat(second.member, second.generation, 3)
    assert not second.assigned
    group.heartbeat(first.member, first.generation, 4, released=[part(3)])
    second = group.heartbeat(second.member, second.generation, 5)
    assert second.assigned == parts(3)


def test_what_is_leaving_may_still_be_committed_until_it_is_released():
    group = new_group(2)
    first = group.join("c", {"s"}, 0)
    group.join("c", {"s"}, 1)
    first = group.heartbeat(first.member, first.generation, 2)
    assert first.leaving == parts(1)
    group.commit(first.member, first.generation, at(1), 3)
    group.heartbeat(first.member, first.generation, 4, released=first.leaving)
    with pytest.raises(NotAssignedError):
        group.commit(first.member, first.generation, at(1, 9), 5)
    assert group.committed(part(1)).offset == 7


def test_a_member_that_leaves_gives_its_partitions_at_once():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    second = group.join("c", {"s"}, 0)
    group.leave(first.member, 1)
    assert group.heartbeat(second.member, second.generation, 2).assigned == parts(0, 1, 2, 3)


def test_a_silent_member_is_given_up_and_its_late_commit_refused():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    second = group.join("c", {"s"}, SESSION_MS - 1)
    group.tick(SESSION_MS - 1)
    assert len(group.members()) == 2
    group.tick(SESSION_MS)
    assert [each.member for each in group.members()] == [second.member]
    with pytest.raises(UnknownMemberError):
        group.commit(first.member, first.generation, at(0), SESSION_MS)
    with pytest.raises(UnknownMemberError):
        group.heartbeat(first.member, first.generation, SESSION_MS)
    second = group.heartbeat(second.member, second.generation, SESSION_MS)
    assert second.assigned == parts(0, 1, 2, 3)


def test_the_next_deadline_is_that_of_the_first_session_to_end():
    group = new_group()
    assert group.next_deadline_ms is None
    group.join("c", {"s"}, 5)
    group.join("c", {"s"}, 3)
    assert group.next_deadline_ms == 3 + SESSION_MS


def test_a_member_that_never_lets_go_is_given_up_though_it_is_not_silent():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    second = group.join("c", {"s"}, 0)
    now = 0
    for now in range(0, RELEASE_MS, 50):
        first = group.heartbeat(first.member, first.generation, now)
        second = group.heartbeat(second.member, second.generation, now)
        group.tick(now)
    assert first.leaving
    group.tick(RELEASE_MS)
    assert [each.member for each in group.members()] == [second.member]


def test_an_old_generation_is_refused_until_the_member_asks_again():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    group.join("c", {"s"}, 1)
    group.heartbeat(first.member, first.generation, 2)  # and the answer is lost
    with pytest.raises(StaleGenerationError):
        group.commit(first.member, first.generation, at(0), 3)
    with pytest.raises(StaleGenerationError):
        group.heartbeat(first.member, first.generation, 3)
    again = group.join("c", {"s"}, 4, member=first.member)
    assert again.generation > first.generation
    assert again.generation == group.generation
    group.commit(first.member, again.generation, at(0), 5)


def test_a_commit_from_before_a_partition_went_away_and_came_back_is_refused():
    group = new_group(2)
    first = group.join("c", {"s"}, 0)
    second = group.join("c", {"s"}, 1)
    first = group.heartbeat(first.member, first.generation, 2)
    group.heartbeat(first.member, first.generation, 3, released=first.leaving)
    group.commit(second.member, second.generation, at(1, 50), 4)
    group.leave(second.member, 5)  # and the first has both again, without knowing yet
    with pytest.raises(NotAssignedError):
        group.commit(first.member, first.generation, at(1, 9), 6)
    assert group.committed(part(1)).offset == 50


def test_a_commit_is_all_or_nothing():
    group = new_group(2)
    first = group.join("c", {"s"}, 0)
    with pytest.raises(NotAssignedError):
        group.commit(first.member, first.generation, at(0) | at(9), 1)
    assert group.committed(part(0)) is None


@pytest.mark.parametrize(
    "position", [Position(-1), Position(0, "x" * (METADATA_CHARACTERS_MAX + 1))]
)
def test_what_no_offset_can_be_is_refused(position):
    group = new_group()
    first = group.join("c", {"s"}, 0)
    with pytest.raises(InvalidCommitError):
        group.commit(first.member, first.generation, {part(0): position}, 1)


def test_a_static_member_restarts_without_a_rebalance_and_fences_its_former_self():
    group = new_group()
    first = group.join("c", {"s"}, 0, instance="one")
    other = group.join("c", {"s"}, 0, instance="two")
    first = group.heartbeat(first.member, first.generation, 1)
    group.heartbeat(first.member, first.generation, 2, released=first.leaving)
    generation = group.generation
    back = group.join("c", {"s"}, SESSION_MS - 1, instance="one")
    assert back.member != first.member
    assert back.assigned == first.assigned
    assert group.generation == generation
    assert group.heartbeat(other.member, other.generation, SESSION_MS - 1).assigned == parts(2, 3)
    for refused in (
        lambda: group.commit(first.member, first.generation, at(0), SESSION_MS),
        lambda: group.heartbeat(first.member, first.generation, SESSION_MS),
        lambda: group.leave(first.member, SESSION_MS),
    ):
        with pytest.raises(FencedMemberError):
            refused()
    group.commit(back.member, back.generation, at(0), SESSION_MS)


def test_a_static_member_that_comes_back_too_late_is_a_new_one():
    group = new_group()
    first = group.join("c", {"s"}, 0, instance="one")
    group.tick(SESSION_MS)
    assert not group.members()
    back = group.join("c", {"s"}, SESSION_MS + 1, instance="one")
    assert back.generation > first.generation


def test_the_restart_of_a_static_member_lets_go_of_what_it_was_to_release():
    group = new_group(2)
    group.join("c", {"s"}, 0, instance="one")
    other = group.join("c", {"s"}, 0)
    back = group.join("c", {"s"}, 1, instance="one")
    assert (back.assigned, back.leaving) == (parts(0), frozenset())
    assert group.heartbeat(other.member, other.generation, 1).assigned == parts(1)


def test_new_partitions_are_shared_and_those_of_a_deleted_stream_go_with_their_offsets():
    group = new_group(1)
    first = group.join("c", {"s"}, 0)
    group.set_partitions("s", 3, 1)
    first = group.heartbeat(first.member, first.generation, 1)
    assert first.assigned == parts(0, 1, 2)
    group.commit(first.member, first.generation, at(2), 2)
    group.set_partitions("s", 0, 3)
    first = group.heartbeat(first.member, first.generation, 4)
    assert first.leaving == parts(0, 1, 2)
    assert group.committed(part(2)) is None
    assert not load_groups(group.take_records())["g"].offsets


def test_offsets_are_reset_only_when_nobody_reads():
    group = new_group()
    first = group.join("c", {"s"}, 0)
    with pytest.raises(GroupNotEmptyError):
        group.reset(at(0, 3), 1)
    with pytest.raises(GroupNotEmptyError):
        group.delete()
    group.leave(first.member, 2)
    group.reset(at(0, 3), 3)
    assert group.committed(part(0)).offset == 3


def test_lag_is_what_is_left_to_read():
    group = new_group()
    group.reset(at(0, 3), 1)
    assert group.lag(part(0), 10) == 7
    assert group.lag(part(0), 2) == 0
    assert group.lag(part(1), 10) is None


def test_there_is_a_limit_to_members():
    group = new_group(0)
    for _ in range(MEMBERS_MAX):
        group.join("c", set(), 0)
    with pytest.raises(GroupFullError):
        group.join("c", set(), 0)


def prepared(group, transaction=1, position=None, member="", generation=0):
    part_ = GroupPart(GroupId("g"), member, generation, position or at(0, 20))
    return group.prepare(transaction, part_, 5)


def marker(number, transaction, decision):
    return Marker(number, transaction, KEY, decision, ())


def test_offsets_of_a_transaction_move_when_it_is_committed_and_not_before():
    group = new_group()
    group.reset(at(0, 3), 1)
    assert prepared(group) is Vote.YES
    with pytest.raises(OffsetUnstableError):
        group.committed(part(0))
    with pytest.raises(OffsetUnstableError):
        group.reset(at(0, 4), 2)
    with pytest.raises(OffsetUnstableError):
        group.delete()
    group.mark([marker(1, 1, Decision.COMMIT)])
    assert group.committed(part(0)).offset == 20


def test_offsets_of_an_aborted_transaction_do_not_move():
    group = new_group()
    group.reset(at(0, 3), 1)
    prepared(group)
    group.mark([marker(1, 1, Decision.ABORT)])
    assert group.committed(part(0)).offset == 3


def test_a_marker_that_comes_twice_does_not_undo_what_came_after_it():
    group = new_group()
    prepared(group)
    group.mark([marker(1, 1, Decision.COMMIT)])
    group.reset(at(0, 30), 6)
    group.mark([marker(1, 1, Decision.COMMIT)])
    assert group.committed(part(0)).offset == 30
    assert group.strays == 0


def test_the_group_votes_against_a_zombie_and_against_a_second_transaction():
    group = new_group()
    told = group.join("c", {"s"}, 0)
    assert prepared(group, member="nobody", generation=told.generation) is Vote.FENCED
    assert prepared(group, member=told.member, generation=told.generation - 1) is Vote.FENCED
    assert prepared(group) is Vote.FENCED  # it has members, so offsets are theirs
    assert prepared(group, 1, member=told.member, generation=told.generation) is Vote.YES
    assert prepared(group, 1, member=told.member, generation=told.generation) is Vote.YES
    assert prepared(group, 2, member=told.member, generation=told.generation) is Vote.BUSY


def test_a_prepared_transaction_outlives_the_member_that_asked_for_it():
    group = new_group()
    told = group.join("c", {"s"}, 0)
    prepared(group, 1, member=told.member, generation=told.generation)
    group.leave(told.member, 6)
    group.mark([marker(1, 1, Decision.COMMIT)])
    assert group.committed(part(0)).offset == 20


def test_a_prepare_that_came_after_its_marker_can_be_forgotten():
    group = new_group()
    group.mark([marker(1, 1, Decision.ABORT)])
    prepared(group, 1)
    group.forget(1)
    assert group.committed(part(0)) is None
    assert not load_groups(group.take_records())["g"].held


def test_a_transaction_does_not_bring_back_offsets_of_a_deleted_stream():
    group = new_group()
    prepared(group, 1)
    group.set_partitions("s", 0, 6)
    group.mark([marker(1, 1, Decision.COMMIT)])
    assert not group.offsets


def test_a_deleted_group_leaves_nothing_behind():
    group = new_group()
    group.reset(at(0) | at(1), 1)
    group.delete()
    records = group.take_records()
    assert load_groups(records) == {}
    assert set(dict(records).values()) == {None}


def test_a_record_of_a_later_version_is_not_misread():
    group = new_group()
    group.reset(at(0), 1)
    key, value = group.take_records()[0]
    with pytest.raises(UnknownRecordError):
        load_groups([Record(key, b"\x84\x02" + value[2:])])
