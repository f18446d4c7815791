"""Members come and go, fall behind, are damaged, lead and follow: one thing at a time."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
import trio

from broker.cluster import applying, leadership, outgoing
from broker.cluster.incoming import staged_name
from broker.cluster.kinds import Kind
from broker.cluster.replication import Replication
from broker.cluster.transfers import PLACE
from broker.hosted_log import Then
from broker.startup import LogBrokenError
from queues.raft.codec import CodecError, Tails, encode_bundle
from queues.raft.config import ConfChangeError, Config
from queues.raft.messages import AppendReply, Vote
from queues.raft.ready import NotLeaderError
from queues.storage.errors import OutOfSpaceError
from tests.cluster_host.machine import ListMachine
from tests.cluster_host.world import Life, World

A = b"A" * 16


def quick(seed: int = 1, **more: int) -> World:
    world = World(seed, logs=1, **more)
    world.checkpoint_every, world.drop = 3, 0.0
    world.read_s = world.sync_s = world.delay_s = 0.001
    return world


async def started(world: World) -> ListMachine:
    """All nodes run; the leader."""
    for node in world.voters:
        world.start(node, join=False)
    others = len(world.voters) - 1
    await world.until(lambda: all(len(life.seen) == others for life in world.lives.values()))
    for life in world.lives.values():
        life.join(A)
        life.flush()
    await world.until(lambda: world.leader(A) is not None)
    leader = world.leader(A)
    assert leader is not None
    return leader


def life_of(world: World, machine: ListMachine) -> Life:
    return next(life for life in world.lives.values() if life.machines[A] is machine)


async def say(world: World, *entries: bytes) -> None:
    """Through whoever leads, until it is confirmed."""
    for entry in entries:
        while entry not in world.books[A].confirmed:
            machine = world.leader(A)
            if machine is not None:
                machine.say(entry)
                world.end_turn(machine)
            await trio.sleep(0.3)


async def fill(world: World, count: int) -> None:
    """A backlog, parts of it dead, with checkpoints between."""
    machine = world.leader(A)
    assert machine is not None
    for _ in range(count):
        machine.say(b"add %d %s" % (next(world.entries), b"x" * 50))
        if len(machine.live) % 3 == 2:
            machine.say(b"kill %d" % machine.live[0])
        world.end_turn(machine)
        await trio.sleep(0.02)
    await say(world, b"add %d " % next(world.entries))


class Answer:
    """What a change or a barrier came to."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []

    @property
    def then(self) -> Then:
        return self.errors.append


def test_the_first_leads_a_new_log_at_once() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        assert life_of(world, leader).node == 1
        for life in world.lives.values():
            await world.until(lambda life=life: life.book.leader_of(A) == 1)

    quick().run(scenario)


def test_a_leader_that_is_gone_has_a_successor_and_everyone_hears_of_it() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        await fill(world, 5)
        heard: list[int | None] = []
        world.lives[3].book.watch(A, heard.append)
        world.crash(life_of(world, leader).node)
        await say(world, b"add 1000 ")
        successor = world.leader(A)
        assert successor is not None
        me = life_of(world, successor).node
        assert me != 1
        await world.until(lambda: world.lives[3].book.leader_of(A) == me)
        assert heard == [None, me]

    quick().run(scenario)


def test_leadership_is_handed_over_and_what_was_not_applied_is_void() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        assert leader.log is not None
        with pytest.raises(ConfChangeError):
            leader.log.transfer(7)
        leader.log.transfer(2)
        world.end_turn(leader)
        await world.until(lambda: world.lives[2].machines[A].leading)
        assert not leader.leading
        with pytest.raises(NotLeaderError):
            leader.log.transfer(3)

    quick().run(scenario)


def test_a_member_that_was_away_gets_kept_entries_and_the_state() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.crash(3)
        await fill(world, 40)
        life = world.start(3)
        goal = world.books[A].confirmed_max
        await world.until(lambda: life.machines[A].index >= goal)
        assert world.transfers
        life.machines[A].check_live()
        raft = life.replication.logs[A].raft
        assert raft is not None
        world.crash(3)  # what was installed is on its disk, and what it voted for
        life = world.start(3)
        gid = life.host.gid_of(A)
        assert gid is not None
        view = life.store.group(gid)
        assert (view.term, view.vote) == (raft.term, raft.vote)
        assert life.machines[A].index > 0
        life.machines[A].check_live(world.leader(A))
        await world.heal()

    quick().run(scenario)


@pytest.mark.parametrize("seed", range(1, 41))
def test_a_crash_at_any_point_of_an_install_leaves_the_old_state_or_the_new(seed: int) -> None:
    async def scenario(world: World) -> None:
        await started(world)
        await fill(world, 5)
        world.crash(3)
        await fill(world, 30)
        truth, goal = world.leader(A), world.books[A].confirmed_max
        life = world.start(3)
        for _ in range(3):
            await trio.sleep(world.random.uniform(0.0, 0.12))
            world.crash(3)
            life = world.start(3)  # brought back, whatever it is: the machine compares
            life.machines[A].check_live(truth)
            assert staged_gone(life)
        await world.until(lambda: life.machines[A].index >= goal)
        await world.heal()

    quick(seed).run(scenario)


def staged_gone(life: Life) -> bool:
    """A staged group that a crash left is dropped before anything else is written."""
    return life.host.gid_of(staged_name(A)) is None


def test_a_learner_is_brought_up_to_date_promoted_and_known_after_restarts() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        await fill(world, 30)
        life = world.start(4)
        await trio.sleep(3.0)
        assert life.machines[A].index == 0
        assert leader.log is not None
        added, promoted, removed = Answer(), Answer(), Answer()
        leader.log.add_learner(4, added.then)
        world.end_turn(leader)
        await world.until(lambda: added.errors == [None])
        await world.until(lambda: life.machines[A].index >= world.books[A].confirmed_max)
        assert world.transfers
        leader.log.promote(4, promoted.then)
        world.end_turn(leader)
        await world.until(lambda: promoted.errors == [None])
        leader.log.remove(3, removed.then)
        world.end_turn(leader)
        await world.until(lambda: removed.errors == [None])
        await fill(world, 20)  # the entries that said so are compacted
        for node in (1, 2, 4):
            world.crash(node)
            log = world.start(node).machines[A].log
            assert log is not None
            assert log.config == Config((1, 2, 4))
        await say(world, b"add 1000 ")

    quick(nodes=4, voters=3).run(scenario)


def test_changes_and_barriers_are_refused_by_who_does_not_lead() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        follower = world.lives[2].machines[A]
        assert follower.log is not None
        answer = Answer()
        follower.log.add_learner(4, answer.then)
        follower.log.read_index(answer.then)
        assert [type(error) for error in answer.errors] == [NotLeaderError, NotLeaderError]

    quick().run(scenario)


def test_a_leader_in_a_minority_steps_down_and_its_barriers_fail() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        assert leader.log is not None
        world.cuts |= {(1, 2), (1, 3)}
        world.unlink(1, 2)
        world.unlink(1, 3)
        answer = Answer()
        leader.log.read_index(answer.then)
        world.end_turn(leader)
        await world.until(lambda: not leader.leading)
        assert isinstance(answer.errors[0], NotLeaderError)
        await world.until(lambda: world.leader(A) is not None)
        await world.heal()

    quick().run(scenario)


@pytest.mark.parametrize("node", [1, 3])
def test_a_damaged_member_takes_no_part_and_says_so(node: int) -> None:
    async def scenario(world: World) -> None:
        await started(world)
        await fill(world, 10)
        told: list[bytes] = []
        life = world.lives[node]
        life.replication.on_damaged.append(lambda uid, reason: told.append(uid))
        machine = life.machines[A]
        assert machine.log is not None
        life.replication.damage(machine.log, "a bit has flipped")
        life.flush()
        assert told == [A]
        assert machine.damage == "a bit has flipped"
        before = machine.index
        await say(world, b"add 1000 ")  # the others go on, with another leader if need be
        assert machine.index == before
        assert not machine.leading

    quick().run(scenario)


def test_a_log_that_is_damaged_on_disk_is_not_served_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        await fill(world, 10)
        await trio.sleep(1.0)
        world.crash(3)
        disk = world.disks[3]
        for name in disk.list():
            if name.startswith(("wal", "seg")):
                at = disk.content(name).find(b"add 5 ")
                while at >= 0:
                    disk.flip(name, at)
                    at = disk.content(name).find(b"add 5 ", at)
        life = world.start(3)
        assert life.machines[A].damage is not None
        await say(world, b"add 1000 ")
        assert not life.machines[A].leading

    quick(2).run(scenario)


def test_messages_for_logs_that_are_not_here_make_nothing() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        other = world.lives[2]
        other.replication.leave(other.replication.logs[A])
        groups = len(list(other.store.groups()))
        leader.say(b"add 1 ")
        world.end_turn(leader)
        await trio.sleep(3.0)
        assert other.replication.strangers
        assert not other.replication.logs
        assert len(list(other.store.groups())) == groups

    quick(nodes=2).run(scenario)


def test_malformed_messages_are_refused() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        for kind in (Kind.RAFT, Kind.RAFT_BULK, Kind.SNAPSHOT, Kind.LEADS):
            for body in (b"", b"\0\xff", b"\x07", b"\0" + b"\1" * 20, b"\0" + A * 5):
                if kind is Kind.LEADS and not len(body) % 25:
                    continue
                with suppress(ValueError, CodecError):
                    world.lives[2].handlers[kind](1, body)
        await say(world, b"add 1000 ")

    quick().run(scenario)


def test_a_log_with_much_uncommitted_holds_publishers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "UNCOMMITTED_BYTES_MAX", 1000)

    async def scenario(world: World) -> None:
        leader = await started(world)
        life = life_of(world, leader)
        for node in (2, 3):
            world.unlink(1, node)
            world.cuts.add((1, node))
        for number in range(50):
            leader.say(b"add %d %s" % (number, b"x" * 100))
        world.end_turn(leader)
        assert leader.log is not None
        assert 1000 < leader.log.proposed_bytes < 1500
        assert life.host.overloaded
        await world.until(lambda: not leader.leading)
        assert not life.host.overloaded
        assert life.replication.leadership.uncommitted_bytes == 0
        await world.heal()

    quick().run(scenario)


def test_everything_is_said_though_little_may_be_uncommitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "UNCOMMITTED_BYTES_MAX", 1000)

    async def scenario(world: World) -> None:
        leader = await started(world)
        for number in range(200):
            leader.say(b"add %d %s" % (number, b"x" * 100))
        world.end_turn(leader)
        await world.until(lambda: len(world.books[A].confirmed) == 200)
        assert not life_of(world, leader).host.overloaded

    quick().run(scenario)


def test_a_long_backlog_is_applied_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "SLICE_ENTRIES", 4)
    most: list[int] = []
    real = applying.Applier.some

    def some(self: applying.Applier) -> bool:
        machines = [log.machine for log in self._replication.logs.values()]
        before = sum(machine.index for machine in machines if isinstance(machine, ListMachine))
        more = real(self)
        after = sum(machine.index for machine in machines if isinstance(machine, ListMachine))
        most.append(after - before)
        return more

    monkeypatch.setattr(applying.Applier, "some", some)

    async def scenario(world: World) -> None:
        leader = await started(world)
        for number in range(100):
            leader.say(b"add %d " % number)
        world.end_turn(leader)
        await world.heal()

    quick().run(scenario)
    assert 0 < max(most) <= 4 + 1  # the group's own first entry has an index too


class Filed(ListMachine):
    """Has files of its own beside its state: numbered pages."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.pages: list[bytes] = []

    def have(self) -> bytes:
        return bytes([len(self.pages)])

    def parts(self, index: int, have: bytes) -> Iterator[bytes]:
        yield from self.pages[have[0] :]

    def take(self, part: bytes) -> None:
        self.pages.append(part)


def test_a_machine_with_files_hands_over_those_that_are_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.cluster_host.world.ListMachine", Filed)
    monkeypatch.setattr(outgoing, "FLIGHT_BYTES_MAX", 100)

    async def scenario(world: World) -> None:
        await started(world)
        world.crash(3)
        await fill(world, 40)
        pages = [bytes([number]) * 60 for number in range(10)]
        for life in world.lives.values():
            machine = life.machines[A]
            assert isinstance(machine, Filed)
            machine.pages = list(pages)
        machine = world.start(3).machines[A]
        assert isinstance(machine, Filed)
        machine.pages = pages[:3]
        await world.until(lambda: world.transfers == 1)
        assert machine.pages == pages

    quick().run(scenario)


class Breakable(Filed):
    """Its files may turn out to be damaged, while its log is sound."""

    broken = False
    full = 0  # so many parts find no room

    def break_down(self) -> None:
        self.broken = True
        self.pages, self.index, self.digest, self.live = [], 0, 0, []
        self._dead, self._checkpointed = [], 0

    def apply(self, index: int, entry: bytes) -> None:
        if not self.broken and index > self.index:
            super().apply(index, entry)

    def take(self, part: bytes) -> None:
        if self.full:
            self.full -= 1
            raise OutOfSpaceError("no room for another page")
        super().take(part)

    def install(self, index: int, state: bytes) -> list[int]:
        self.broken = False
        return super().install(index, state)


def breakable(world: World, node: int) -> Breakable:
    machine = world.lives[node].machines[A]
    assert isinstance(machine, Breakable)
    return machine


async def repaired(world: World, node: int) -> Breakable:
    """Damaged, and then mended by whoever leads, while more is said."""
    machine, life = breakable(world, node), world.lives[node]
    assert machine.log is not None
    machine.break_down()
    await say(world, b"add 900 ")
    while machine.broken:
        life.replication.snapshots.need(machine.log)
        life.flush()
        await say(world, b"add %d " % next(world.entries))
    return machine


@pytest.mark.parametrize("full", [0, 1])
def test_files_that_are_damaged_are_had_from_the_leader(
    monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    monkeypatch.setattr("tests.cluster_host.world.ListMachine", Breakable)

    async def scenario(world: World) -> None:
        leader = await started(world)
        await fill(world, 40)
        pages = [bytes([number]) * 60 for number in range(10)]
        for node in world.nodes:
            breakable(world, node).pages = list(pages)
        node = next(n for n in world.nodes if not breakable(world, n).leading)
        breakable(world, node).full = full
        machine = await repaired(world, node)
        assert machine.pages == pages
        await world.until(lambda: machine.index == leader.index)
        assert (machine.digest, machine.live) == (leader.digest, leader.live)
        world.crash(node)
        await fill(world, 40)
        world.start(node)
        await world.heal()

    quick().run(scenario)


def test_one_that_leads_does_not_ask_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster_host.world.ListMachine", Breakable)

    async def scenario(world: World) -> None:
        leader = await started(world)
        life = life_of(world, leader)
        assert leader.log is not None
        life.replication.snapshots.need(leader.log)
        assert not any(line.small or line.large for line in life.lines.values())

    quick().run(scenario)


def test_one_without_room_takes_nothing_until_it_has_some() -> None:
    async def scenario(world: World) -> None:
        world.checkpoint_every = 1000  # the leader has everything in its log
        leader = await started(world)
        await world.heal()
        life = next(each for each in world.lives.values() if each.machines[A] is not leader)
        log = life.machines[A].log
        assert log is not None
        assert log.raft is not None
        log.is_full = lambda: True
        last = log.raft.log.last
        await fill(world, 40)
        assert log.raft.log.last == last
        assert not life.machines[A].leading
        log.is_full = lambda: False
        await world.heal()

    quick().run(scenario)


def test_a_leader_hears_what_is_on_its_own_disk_before_others_have_it() -> None:
    async def scenario(world: World) -> None:
        leader = await started(world)
        log, told = leader.log, list[int]()
        assert log is not None
        log.on_disk = told.append
        for node in world.nodes:
            if node != life_of(world, leader).node:
                world.crash(node)
        for number in range(3):
            leader.say(b"add %d " % number)
        world.end_turn(leader)
        await world.until(lambda: told[-1:] == [3])
        assert not world.books[A].confirmed
        await world.heal()

    quick().run(scenario)


async def both_in_one_turn(world: World) -> tuple[Life, list[object]]:
    """A read waits at the leader, which hears these of another in one turn: what it is told."""
    leader = await started(world)
    await say(world, b"add 1 ")
    life, log = life_of(world, leader), leader.log
    assert log is not None
    assert log.raft is not None
    other = next(node for node in world.voters if node != life.node)
    told: list[object] = []
    log.read_index(told.append)
    raft = log.raft
    reply = AppendReply(
        life.node, other, raft.term, True, raft.log.last, raft.commit, 0, 0, raft._read_round
    )
    vote = Vote(life.node, other, raft.term + 1, raft.log.last, raft.log.last_term, transfer=True)
    for message in (reply, vote):
        bundle = b"".join(encode_bundle([(A, message)], Tails()))
        life.handlers[Kind.RAFT](other, b"\0" + bundle)
    return life, told


def test_a_read_confirmed_and_a_leader_deposed_in_one_turn_is_an_ordinary_turn() -> None:
    async def scenario(world: World) -> None:
        life, told = await both_in_one_turn(world)
        life.flush()
        assert [type(error) for error in told] == [NotLeaderError]
        await say(world, b"add 2 ")

    quick().run(scenario)


def test_a_read_asked_for_after_the_deposition_in_the_same_turn_is_refused() -> None:
    async def scenario(world: World) -> None:
        life, told = await both_in_one_turn(world)
        log = life.machines[A].log
        assert log is not None
        log.read_index(told.append)
        life.flush()
        assert [type(error) for error in told] == [NotLeaderError, NotLeaderError]

    quick().run(scenario)


def test_a_turn_that_breaks_off_ends_the_node() -> None:
    class BugError(Exception):
        pass

    async def scenario(world: World) -> None:
        leader = await started(world)
        life = life_of(world, leader)

        def raises() -> bool:
            raise BugError

        life.replication._applier.some = raises  # type: ignore[method-assign]
        life.host.flush()
        await trio.sleep(1.0)

    with pytest.RaisesGroup(LogBrokenError, flatten_subgroups=True):
        quick().run(scenario)


def test_many_logs_that_feed_one_follower_heed_what_waits_for_it() -> None:
    """A node that was away lacks much of each of forty logs: its link is filled, not flooded."""
    world = World(1, logs=40)
    world.checkpoint_every, world.drop, world.coalesce = 1000, 0.0, 0.5
    world.read_s = world.sync_s = world.delay_s = 0.001
    world.piece_bytes, world.high_bytes, world.pace_bytes = 2000, 20_000, 10_000

    async def scenario(world: World) -> None:
        for node in world.voters:
            world.start(node)
        await world.until(lambda: all(world.leader(uid) is not None for uid in world.uids))
        world.crash(3)
        for _ in range(20):
            for uid in world.uids:
                machine = world.leader(uid)
                if machine is not None:
                    machine.say(b"add %d %s " % (next(world.entries), b"x" * 2000))
                    world.end_turn(machine)
            await trio.sleep(0.1)
        world.waiting_max = 0
        world.start(3)
        await world.heal()

    world.run(scenario)
    # What may wait, and what a few reads for it find, of forty logs with 40 kB each.
    assert world.waiting_max < 20_000 + 5 * 45_000


def test_a_snapshot_that_is_heeded_is_installed_whatever_else_comes_in_that_turn() -> None:
    """Another offer, and the end of the link, right behind the leader's Install."""
    for ending in ("offer", "lost"):
        world = quick(3)
        heeded: list[int] = []

        async def scenario(world: World, heeded: list[int] = heeded, ending: str = ending) -> None:
            leader = await started(world)
            away = next(n for n in world.voters if n != life_of(world, leader).node)
            world.crash(away)
            await fill(world, 20)
            life = world.start(away)
            snapshots, real = life.replication.snapshots, Replication._step

            def step(self: Replication, log: Any, raft: Any, message: Any, now: float) -> None:
                real(self, log, raft, message, now)
                if self is life.replication and raft.installs:
                    heeded.append(message.snapshot.index)
                    if ending == "lost":
                        snapshots.lost(message.frm)
                    else:
                        rest = PLACE.pack(message.snapshot.index + 1, message.term)
                        snapshots._offered(log, message.frm, 77, rest, repair=False)

            with patch.object(Replication, "_step", step):
                await world.heal()

        world.run(scenario)
        assert heeded


def test_a_node_that_was_away_for_a_moment_keeps_what_it_leads_in_all_its_logs() -> None:
    """News of it is told in slices: late ones find it back already, and leading."""
    world = World(2, logs=12)
    world.checkpoint_every, world.drop, world.coalesce = 1000, 0.0, 0.0
    world.read_s = world.sync_s = world.delay_s = 0.001

    async def scenario(world: World) -> None:
        for node in world.voters:
            world.start(node, join=False)
        lives = world.lives.values()
        await world.until(lambda: all(len(life.seen) == 2 for life in lives))
        for life in lives:
            for uid in world.uids:
                life.join(uid)
            life.flush()
        first = world.lives[world.voters[0]]
        await world.until(lambda: all(first.machines[uid].leading for uid in world.uids))
        await trio.sleep(1.0)
        terms = [first.replication.logs[uid].raft.term for uid in world.uids]  # type: ignore[union-attr]
        for follower in (world.lives[node] for node in world.voters[1:]):
            follower.host.node_down(first.node)
            follower.host.node_up(first.node, restarted=False)
            leads = [(uid, first.book.term_of(uid)) for uid in world.uids]
            for uid, term in leads:
                follower.book.received(first.node, uid + term.to_bytes(8) + b"\1")
            follower.flush()
        await trio.sleep(3.0)
        assert [first.replication.logs[uid].raft.term for uid in world.uids] == terms  # type: ignore[union-attr]

    with patch("broker.cluster.node_news.SLICE_LOGS", 3):
        world.run(scenario)


def test_a_leader_that_heeds_nothing_floods_the_link() -> None:
    """The bound of the catch-up above is one that would be noticed."""
    with (
        patch.object(Life, "congested", lambda _self, _node, _key: False),
        patch("broker.cluster.disk_reads.FEEDS_MAX", 1000),
        pytest.raises(AssertionError),
    ):
        test_many_logs_that_feed_one_follower_heed_what_waits_for_it()
