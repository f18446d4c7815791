"""Who is let in: both must prove the secret, and be who they were."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock, memory_stream_pair

from broker.cluster import hello
from broker.cluster.cluster import in_the_clear
from broker.cluster.enrolment import Membership
from broker.cluster.hello import (
    Claim,
    HelloFailedError,
    Opening,
    RefusedByPeerError,
    RefusedError,
)
from broker.cluster.identity import Identity, Start
from broker.cluster.strangers import Strangers
from broker.cluster_settings import ClusterMember, parse_address
from broker.config import Config
from tests.cluster_links.harness import SECRET, MemoryNet, cluster_of, until

DIALER = Claim(1, b"u" * 16, b"c" * 16, Start(3, b"r" * 16), "a")
ACCEPTOR = Claim(2, b"v" * 16, b"c" * 16, Start(4, b"s" * 16), "b")
OPENING = Opening(0, b"l" * 16, 2, DIALER)
FAILURES = (HelloFailedError, RefusedError, RefusedByPeerError, trio.TooSlowError)


@pytest.fixture
def net() -> MemoryNet:
    return MemoryNet()


class Meeting:
    """A dialer and an acceptor, with someone on the wire between them."""

    def __init__(self) -> None:
        self.let_in: list[Opening] = []
        self.met: list[Claim] = []
        self.errors: list[BaseException] = []
        self.said: list[bytes] = []  # all messages, in order

    async def hold(
        self,
        *,
        secrets: tuple[bytes, bytes] = (SECRET, SECRET),
        meddle: Callable[[int, bytes], bytes] = lambda _, data: data,
        refuse: str | None = None,
    ) -> "Meeting":
        dialer, near = memory_stream_pair()
        far, acceptor = memory_stream_pair()

        async def carry(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
            try:
                while data := await source.receive_some(65536):
                    self.said.append(bytes(data))
                    await target.send_all(meddle(len(self.said) - 1, bytes(data)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            await target.aclose()

        async def approve(claim: Claim) -> None:
            assert claim == ACCEPTOR

        async def admit(opening: Opening) -> None:
            assert opening == OPENING
            if refuse:
                raise RefusedError(refuse)

        async def dial() -> None:
            try:
                with trio.fail_after(2):
                    self.met.append(await hello.dial(dialer, secrets[0], OPENING, approve))
            except FAILURES as error:
                self.errors.append(error)
            await dialer.aclose()

        async def accept() -> None:
            try:
                with trio.fail_after(2):
                    self.let_in.append(await hello.accept(acceptor, secrets[1], ACCEPTOR, admit))
            except FAILURES as error:
                self.errors.append(error)
            await acceptor.aclose()

        async with trio.open_nursery() as nursery:
            for task in (dial, accept):
                nursery.start_soon(task)
            nursery.start_soon(carry, near, far)
            nursery.start_soon(carry, far, near)
        return self


async def test_both_learn_who_the_other_is(autojump_clock: MockClock) -> None:
    meeting = await Meeting().hold()
    assert meeting.let_in == [OPENING]
    assert meeting.met == [ACCEPTOR]
    assert not meeting.errors
    assert SECRET not in b"".join(meeting.said)


async def test_two_meetings_never_show_the_same_proof(autojump_clock: MockClock) -> None:
    first, second = await Meeting().hold(), await Meeting().hold()
    assert not set(first.said[:-1]) & set(second.said[:-1])


async def test_another_secret_is_refused_and_both_know(autojump_clock: MockClock) -> None:
    meeting = await Meeting().hold(secrets=(SECRET, b"another"))
    assert not meeting.let_in
    assert not meeting.met
    by_kind = {type(error): str(error) for error in meeting.errors}
    assert by_kind == {
        RefusedError: "its cluster secret is not this node's",
        RefusedByPeerError: "its cluster secret is not this node's",
    }


async def test_a_reason_reaches_the_other_end(autojump_clock: MockClock) -> None:
    meeting = await Meeting().hold(refuse="because " + "x" * 5000)
    reasons = [str(error) for error in meeting.errors if isinstance(error, RefusedByPeerError)]
    assert [len(reason) for reason in reasons] == [hello.REASON_CHARS_MAX]
    assert not meeting.let_in


async def test_not_a_byte_can_be_changed_on_the_way(autojump_clock: MockClock) -> None:
    whole = (await Meeting().hold()).said
    assert len(whole) == 5
    for message, data in enumerate(whole[:4]):
        for position in range(len(data)):

            def flip(number: int, data: bytes, message=message, position=position) -> bytes:  # type: ignore[no-untyped-def]
                if number != message:
                    return data
                return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]

            meeting = await Meeting().hold(meddle=flip)
            assert not meeting.let_in, (message, position)
            assert not meeting.met, (message, position)


async def test_another_version_is_refused_by_name(autojump_clock: MockClock) -> None:
    def older(number: int, data: bytes) -> bytes:
        return data[:11] + (9).to_bytes(2, "big") + data[13:] if number == 0 else data

    meeting = await Meeting().hold(meddle=older)
    assert {str(error) for error in meeting.errors} == {
        "it speaks version 9 between nodes, this node 1"
    }


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\x01" + b"x" * 70000,
        b"\x00\x00\x00",
        b"\x00\x01\x01",
        b"\x00\x09\x01LVRTPEER",
        b"\x00\x02\x06\xff",
        b"",
    ],
)
async def test_strangers_are_turned_away_without_a_word(
    data: bytes, tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        stream = await net.of("elsewhere:1").connect("b:1")
        await stream.send_all(data)
        if not data:
            await stream.send_eof()  # type: ignore[attr-defined]
        assert await stream.receive_some(100) == b""
        assert cluster["b"].peers.is_up(1)


async def test_a_silent_stranger_is_not_waited_for_and_many_cannot_shut_the_door(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        began = trio.current_time()
        streams = [await net.of("elsewhere:1").connect("b:1") for _ in range(200)]
        cluster["a"].peers.drop(2, "to see whether it is let in again")
        await until(lambda: len(cluster["b"].of("up")) == 2)
        assert trio.current_time() - began < 1
        for stream in streams:
            assert await stream.receive_some(1) == b""
        assert trio.current_time() - began < 4


async def test_a_flood_of_silent_strangers_does_not_keep_a_member_out(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Five hundred a second, from its very address."""
    net.delay_s = 0.001
    async with cluster_of("ab", tmp_path, net.of) as cluster:

        async def flood() -> None:
            while True:
                await net.of("elsewhere:1").connect("b:1")
                await trio.sleep(0.002)

        cluster.nursery.start_soon(flood)
        await trio.sleep(1.0)
        assert len(cluster["b"].peers._door._strangers) <= 16
        cluster["a"].peers.drop(2, "to see whether it is let in again")
        await until(lambda: len(cluster["b"].of("up")) == 2)


async def test_the_oldest_stranger_gives_way_and_one_with_a_members_address_last(
    autojump_clock: MockClock,
) -> None:
    strangers = Strangers(4, 2)
    ended: list[str] = []

    async def come(name: str, source: str, *, known: bool = False) -> None:
        with strangers.hear(source, known=known):
            await trio.sleep_forever()
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for name, source, known in [
            ("1", "member", True),
            ("2", "x", False),
            ("3", "y", False),
            ("4", "x", False),
            ("5", "x", False),  # a third of its address: its oldest goes
            ("6", "z", False),  # a fifth in all: the oldest that is no member's goes
        ]:
            nursery.start_soon(partial(come, name, source, known=known))
            await trio.testing.wait_all_tasks_blocked()
        assert ended == ["2", "3"]
        nursery.cancel_scope.cancel()


def reasons(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {
        str(record.fields["reason"])  # type: ignore[attr-defined]
        for record in caplog.records
        if record.msg == "link_refused"
    }


def told_at_both_ends(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    found = [reason for reason in reasons(caplog) if words in reason]
    return any(reason.startswith("refused by it: ") for reason in found) and any(
        not reason.startswith("refused by it: ") for reason in found
    )


async def test_a_node_with_another_secret_is_not_let_in_and_no_secret_is_logged(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of("ab", tmp_path, net.of, started=False, secret=b"wrong-one") as cluster:
        await cluster.start("a")
        async with cluster_of("b", tmp_path, net.of, addresses=dict(cluster["a"].options.listed),
                              started=False) as others:  # fmt: skip
            await others.start()
            await until(lambda: told_at_both_ends(caplog, "cluster secret"))
            await trio.sleep(10)
            assert cluster["a"].peers.membership is Membership.FORMING
    logged = caplog.text + repr([vars(record) for record in caplog.records])
    assert "wrong-one" not in logged
    assert SECRET.decode() not in logged
    assert "wrong-one" not in repr(cluster["a"].options)


async def test_a_restored_backup_is_refused_and_both_say_why(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The same whether it was started since with a higher number or with the same."""
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        b = cluster["b"]
        b.kill()
        await until(lambda: "b:1" not in net.listening)
        shutil.copytree(b.directory, tmp_path / "backup")
        await cluster.start("b")
        await cluster.until_up()
        b.kill()
        await until(lambda: "b:1" not in net.listening)
        shutil.rmtree(b.directory)
        shutil.copytree(tmp_path / "backup", b.directory)
        b.events.clear()
        await cluster.start("b")
        await until(lambda: told_at_both_ends(caplog, "restored from a backup"))
        await trio.sleep(10)
        assert not b.events
        assert b.peers.boot == cluster["a"].peers.boot_of(2)


async def test_a_node_of_another_cluster_is_refused(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    async with cluster_of("ab", tmp_path / "first", net.of):
        pass
    async with cluster_of("ab", tmp_path / "second", net.of):
        pass
    shutil.rmtree(tmp_path / "first" / "b")
    shutil.copytree(tmp_path / "second" / "b", tmp_path / "first" / "b")
    async with cluster_of("ab", tmp_path / "first", net.of, started=False) as cluster:
        await cluster.start()
        await until(lambda: told_at_both_ends(caplog, "belongs to cluster"))
        await trio.sleep(10)
        assert not cluster["a"].events
        assert "belongs to cluster" in (cluster["a"].peers.statistics()[0].refusal or "")


async def test_a_number_with_another_uuid_is_refused(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of("ab", tmp_path, net.of):
        pass
    forged = Identity.open(tmp_path / "b", "b")
    forged.uuid = b"?" * 16
    forged.boot += 10
    forged.save()
    async with cluster_of("ab", tmp_path, net.of, started=False) as cluster:
        await cluster.start()
        await until(lambda: told_at_both_ends(caplog, "another uuid"))
        await trio.sleep(10)
        assert not cluster["a"].events


async def test_an_emptied_node_never_comes_back_as_itself(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        c = cluster["c"]
        c.kill()
        await until(lambda: "c:1" not in net.listening)
        shutil.rmtree(c.directory)
        await cluster.start("c")
        await until(lambda: c.peers.membership is Membership.JOINING)
        await trio.sleep(10)
        assert c.peers.me == 0
        assert not cluster["a"].peers.is_up(3)


async def test_what_was_seen_of_a_peer_is_on_disk_before_it_is_let_in(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of, started=False) as cluster:
        found: list[int] = []

        def look(peers: object) -> None:
            def up(node: int) -> None:
                copy = tmp_path / f"look{len(found)}"
                shutil.copytree(tmp_path / "a", copy)
                found.append(Identity.open(copy, "a").seen[node].boot)

            cluster["a"].peers.on_up.append(up)

        cluster["a"].prepare = look
        await cluster.start()
        await cluster.until_up()
        cluster["b"].kill()
        await until(lambda: "b:1" not in net.listening)
        await cluster.start("b")
        await until(lambda: len(found) == 2)
        assert found == [1, 2]


async def test_a_refusal_is_not_logged_at_each_attempt(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        cluster["b"].kill()
        await until(lambda: not cluster["a"].peers.is_up(2))
        caplog.clear()
        await trio.sleep(25)
        refused = [record for record in caplog.records if record.msg == "link_refused"]
        assert 1 <= len(refused) <= 2


async def test_a_dialer_that_leaves_between_its_lanes_leaves_nothing_behind(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Both lanes are welcome, and on the control lane the last word never comes."""
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        a, b = cluster["a"], cluster["b"]
        a.kill()
        await until(lambda: "a:1" not in net.listening)
        claim = claim_of(Identity.open(a.directory, "a"))
        network = net.of("a:1")

        async def anyone(_claim: Claim) -> None:
            pass

        async def leave(_claim: Claim) -> None:
            opening = Opening(1, b"l" * 16, 2, claim)
            bulk.append(await network.connect("b:1"))
            await hello.dial(bulk[0], SECRET, opening, anyone)
            raise HelloFailedError("planted: no last word")

        bulk: list[trio.abc.Stream] = []
        control = await network.connect("b:1")
        with pytest.raises(HelloFailedError, match="planted"):
            await hello.dial(control, SECRET, Opening(0, b"l" * 16, 2, claim), leave)
        await control.aclose()
        with trio.fail_after(5):
            assert await bulk[0].receive_some(1) == b""
        await cluster.start("a")
        await cluster.until_up()
        assert b.peers.is_up(1)


def claim_of(identity: Identity) -> Claim:
    assert identity.cluster is not None
    start = Start(identity.boot, identity.run)
    return Claim(identity.number, identity.uuid, identity.cluster, start, identity.name)


async def test_a_boot_number_that_no_file_could_hold_is_not_taken(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        a = cluster["a"]
        a.kill()
        await until(lambda: "a:1" not in net.listening)
        claim = claim_of(Identity.open(a.directory, "a"))
        claim = claim._replace(start=Start(2**63, b"r" * 16))

        async def anyone(_claim: Claim) -> None:
            pass

        stream = await net.of("a:1").connect("b:1")
        with pytest.raises(HelloFailedError):
            await hello.dial(stream, SECRET, Opening(0, b"l" * 16, 2, claim), anyone)
        assert cluster["b"].peers.boot_of(1) == 1


async def test_a_dialer_of_the_higher_number_is_refused(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        b = cluster["b"]
        b.kill()
        await until(lambda: "b:1" not in net.listening)
        claim = claim_of(Identity.open(b.directory, "b"))

        async def anyone(_claim: Claim) -> None:
            pass

        stream = await net.of("b:1").connect("a:1")
        with pytest.raises(RefusedByPeerError, match="not the other way"):
            await hello.dial(stream, SECRET, Opening(0, b"l" * 16, 1, claim), anyone)


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("127.0.0.1:25672", False),
        ("[::1]:25672", False),
        ("localhost:25672", False),
        ("10.0.0.2:25672", True),
        ("b.example:25672", True),
    ],
)
def test_links_in_the_clear_to_other_machines_are_noticed(address: str, *, warned: bool) -> None:
    member = ClusterMember("b", parse_address(address))
    assert in_the_clear(Config(cluster=(member,))) == ([address] if warned else [])
    with_tls = Config(cluster=(member,), cluster_tls_certificate=Path("cert.pem"))
    assert in_the_clear(with_tls) == []
