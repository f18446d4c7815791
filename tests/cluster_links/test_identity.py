"""The identity file: what it keeps, and what it refuses to be."""

import struct
import zlib
from pathlib import Path

import cbor2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster import identity as identity_module
from broker.cluster.identity import Identity, IdentityError, IdentityKeeper, Start
from broker.cluster.table import UUID_BYTES, PeerInfo, from_plain, split_address, to_plain
from broker.off_loop import at_once

RUN, OTHER_RUN = b"r" * 16, b"s" * 16


def member(directory: Path) -> Identity:
    identity = Identity.open(directory, "a")
    table = {1: PeerInfo("a", identity.uuid, "h:1"), 2: PeerInfo("b", b"b" * 16, "h:2")}
    identity.become(b"c" * 16, 1, table)
    identity.save()
    return identity


def test_each_start_has_a_higher_boot_number_and_the_same_uuid(tmp_path: Path) -> None:
    first = Identity.open(tmp_path, "a")
    second = Identity.open(tmp_path, "a")
    assert (first.boot, second.boot) == (1, 2)
    assert first.uuid == second.uuid
    assert first.run != second.run
    assert first.fresh
    assert second.fresh


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    first = member(tmp_path)
    assert first.see(2, Start(7, RUN))
    first.save()
    second = Identity.open(tmp_path, "a")
    for name in ("name", "uuid", "cluster", "number", "table", "seen"):
        assert getattr(second, name) == getattr(first, name)
    assert second.boot == first.boot + 1


def test_a_removed_node_can_still_read_who_it_was(tmp_path: Path) -> None:
    first = member(tmp_path)
    first.set_table({2: first.table[2]})
    first.save()
    assert Identity.open(tmp_path, "a").number == 1


def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    Identity.open(tmp_path, "a")
    with pytest.raises(IdentityError, match=r"belongs to node 'a'.*called 'b'"):
        Identity.open(tmp_path, "b")


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    file.write_text("Ich bin es\n")
    with pytest.raises(IdentityError, match="is no identity file"):
        Identity.open(tmp_path, "a")
    assert file.read_text() == "Ich bin es\n"


def test_a_file_of_a_later_format_is_named_as_such(tmp_path: Path) -> None:
    Identity.open(tmp_path, "a")
    data = bytearray((tmp_path / "identity").read_bytes())
    data[8] = 9
    (tmp_path / "identity").write_bytes(data)
    with pytest.raises(IdentityError, match="format 9"):
        Identity.open(tmp_path, "a")


def test_any_damage_is_noticed(tmp_path: Path) -> None:
    member(tmp_path)
    file = tmp_path / "identity"
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(IdentityError):
            Identity.open(tmp_path, "a")
        file.write_bytes(whole[:position])
        with pytest.raises(IdentityError):
            Identity.open(tmp_path, "a")


def test_a_disk_that_takes_nothing_is_told_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = member(tmp_path)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(identity_module.os, "fsync", full)
    with pytest.raises(IdentityError, match=r"cannot write .*No space left"):
        Identity.open(tmp_path, "a")
    monkeypatch.undo()
    assert Identity.open(tmp_path, "a").boot == first.boot + 1


def test_the_new_file_is_synced_before_it_takes_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = identity_module.os.fsync, Path.replace

    def synced(fd: int) -> None:
        steps.append("sync " + Path(f"/proc/self/fd/{fd}").resolve().name)
        fsync(fd)

    def replaced(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(identity_module.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    Identity.open(tmp_path, "a")
    assert steps == ["sync identity.new", "replace", f"sync {tmp_path.name}"]


def test_a_start_that_is_not_above_what_was_seen_is_stale(tmp_path: Path) -> None:
    identity = member(tmp_path)
    assert identity.staleness(2, Start(1, RUN)) is None
    identity.see(2, Start(5, RUN))
    assert identity.staleness(2, Start(5, RUN)) is None  # the same start links again
    assert not identity.see(2, Start(5, RUN))
    assert identity.staleness(2, Start(6, OTHER_RUN)) is None
    assert "restored from a backup" in (identity.staleness(2, Start(4, RUN)) or "")
    assert "restored from a backup" in (identity.staleness(2, Start(5, OTHER_RUN)) or "")


async def test_durable_waits_for_what_someone_else_is_saving(tmp_path: Path) -> None:
    identity = member(tmp_path)
    may_write = trio.Event()

    async def slow(work):  # type: ignore[no-untyped-def]
        await may_write.wait()
        return work()

    keeper = IdentityKeeper(identity, slow)
    done: list[str] = []

    async def save(name: str) -> None:
        await keeper.durable()
        assert 2 in Identity.open(tmp_path, "a").seen
        done.append(name)

    identity.see(2, Start(3, RUN))
    keeper.changed()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(save, "first")
        nursery.start_soon(save, "second")
        await trio.testing.wait_all_tasks_blocked()
        assert not done
        may_write.set()
    assert len(done) == 2


async def test_a_place_in_a_cluster_is_on_disk_before_anyone_can_see_it(tmp_path: Path) -> None:
    identity = Identity.open(tmp_path, "a")
    fresh_while_writing: list[bool] = []

    async def watched(work):  # type: ignore[no-untyped-def]
        fresh_while_writing.append(identity.fresh)
        return await at_once(work)

    keeper = IdentityKeeper(identity, watched)
    await keeper.become(b"c" * 16, 1, {1: PeerInfo("a", identity.uuid, "h:1")})
    assert fresh_while_writing == [True]
    assert Identity.open(tmp_path, "a").cluster == identity.cluster == b"c" * 16


@pytest.mark.parametrize(
    ("address", "parts"),
    [("h:1", ("h", 1)), ("127.0.0.1:25672", ("127.0.0.1", 25672)), ("[::1]:5", ("::1", 5))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "h", "h:", ":5", "h:0", "h:65536", "h:x", "h:-1", "h:5 "])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        split_address(address)


@given(
    st.recursive(
        st.none() | st.integers() | st.binary(max_size=20) | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 3), inner, max_size=3)
        ),
    )
)
def test_what_is_no_table_is_a_value_error(value: object) -> None:
    try:
        table = from_plain(value)
    except ValueError:
        return
    assert from_plain(to_plain(table)) == table


def test_an_identity_belongs_to_one_store(tmp_path: Path) -> None:
    identity = Identity.open(tmp_path, "a")
    assert identity.bind(b"s" * UUID_BYTES)
    identity.save()
    again = Identity.open(tmp_path, "a")
    assert not again.bind(b"s" * UUID_BYTES)
    with pytest.raises(IdentityError, match="logs that are not in this directory any more"):
        again.bind(b"t" * UUID_BYTES)


def test_an_identity_of_an_earlier_version_takes_the_store_that_it_finds(tmp_path: Path) -> None:
    identity = Identity.open(tmp_path, "a")
    plain = cbor2.loads(identity.encode()[17:])
    del plain["store"]
    body = cbor2.dumps(plain)
    head = struct.pack(">8sBII", b"LVRTNODE", 1, len(body), zlib.crc32(body))
    (tmp_path / "identity").write_bytes(head + body)
    again = Identity.open(tmp_path, "a")
    assert again.uuid == identity.uuid
    assert again.bind(b"s" * UUID_BYTES)
