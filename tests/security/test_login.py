"""Logging in: who is let in, what a failure costs, and what guessing in numbers brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio

from broker.security import login
from broker.security.login import Doorkeeper
from broker.security.passwords import NO_PASSWORD, PasswordHash, hash_password, rabbitmq_hash
from broker.security.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
DELAY_S = 1.5
HOME, ABROAD = "127.0.0.1", "192.0.2.7"
COSTLY = hash_password(b"secret", bytes(16))


class Hashing:
    """Counts what is done off the loop, which takes some time."""

    def __init__(self) -> None:
        self.count = 0
        self.takes_s = 0.25

    async def __call__(self, work: Callable[[], T]) -> T:
        self.count += 1
        await trio.sleep(self.takes_s)
        return work()


class Door:
    def __init__(self) -> None:
        self.users = {
            "costly": User("costly", password=COSTLY),
            "cheap": User("cheap", password=rabbitmq_hash(b"secret", b"salt")),
            "guest": User("guest", password=rabbitmq_hash(b"guest", b"salt")),
            "keyless": User("keyless", password=NO_PASSWORD),
        }
        self.hashing = Hashing()
        self.keeper = Doorkeeper(
            self.users, loopback_users=["guest"], failure_delay_s=DELAY_S, off_loop=self.hashing
        )

    async def log_in(self, name: str, password: bytes, host: str = ABROAD) -> User | None:
        return await self.keeper.log_in(name, password, host)


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize("name", ["costly", "cheap"])
async def test_the_right_password_lets_in_and_no_other(
    autojump_clock: Any, door: Door, name: str
) -> None:
    assert await door.log_in(name, b"secret") is door.users[name]
    for wrong in (b"", b"Secret", b"secret\0", b"secre"):
        assert await door.log_in(name, wrong) is None
    assert await door.log_in(name, b"secret") is door.users[name]


async def test_a_loopback_user_is_refused_from_elsewhere(autojump_clock: Any, door: Door) -> None:
    assert await door.log_in("guest", b"guest", HOME) is door.users["guest"]
    assert await door.log_in("guest", b"guest", ABROAD) is None, "though it is known by now"
    assert await Door().log_in("guest", b"guest", ABROAD) is None


@pytest.mark.parametrize("password", [b"", b"x"])
async def test_a_user_without_a_password_is_let_in_by_certificate_only(
    autojump_clock: Any, door: Door, password: bytes
) -> None:
    assert await door.log_in("keyless", password) is None
    assert await door.keeper.admit("keyless", ABROAD) is door.users["keyless"]


async def test_a_certificate_lets_in_users_that_there_are_and_may_call_from_there(
    autojump_clock: Any,
    door: Door,
) -> None:
    assert await door.keeper.admit("stranger", ABROAD) is None
    assert await door.keeper.admit("guest", ABROAD) is None
    assert await door.keeper.admit("guest", HOME) is door.users["guest"]


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("costly", b"wrong"),
        ("cheap", b"wrong"),
        ("keyless", b"wrong"),
        ("stranger", b"secret"),
        ("", b""),
        ("guest", b"guest"),  # from elsewhere
    ],
)
async def test_every_failure_is_told_after_the_same_time(
    autojump_clock: Any, door: Door, name: str, password: bytes
) -> None:
    await door.keeper._hash_of_nobody()  # made once, by whoever is the first to need it
    before = trio.current_time()
    assert await door.log_in(name, password) is None
    assert trio.current_time() - before == pytest.approx(DELAY_S)


async def test_a_success_is_told_at_once(autojump_clock: Any, door: Door) -> None:
    before = trio.current_time()
    assert await door.log_in("cheap", b"secret") is not None
    assert trio.current_time() == before


async def test_an_unknown_user_costs_as_much_as_a_known_one(
    autojump_clock: Any, door: Door
) -> None:
    await door.keeper._hash_of_nobody()
    counts = []
    for name in ("costly", "stranger", "cheap", "keyless"):
        before = door.hashing.count
        await door.log_in(name, b"wrong")
        counts.append(door.hashing.count - before)
    assert counts == [1, 1, 1, 1]


async def test_a_password_that_was_right_is_known_again_without_hashing(
    autojump_clock: Any, door: Door
) -> None:
    await door.log_in("costly", b"secret")
    before = door.hashing.count
    for _ in range(100):
        assert await door.log_in("costly", b"secret") is door.users["costly"]
    assert door.hashing.count == before
    assert await door.log_in("costly", b"wrong") is None
    assert door.hashing.count == before + 1


async def test_a_password_that_was_changed_is_not_known_any_more(
    autojump_clock: Any, door: Door
) -> None:
    await door.log_in("costly", b"secret")
    door.users["costly"].password = rabbitmq_hash(b"another", b"salt")
    assert await door.log_in("costly", b"secret") is None
    assert await door.log_in("costly", b"another") is door.users["costly"]


async def test_a_user_who_was_deleted_and_made_again_is_another(
    autojump_clock: Any, door: Door
) -> None:
    await door.log_in("costly", b"secret")
    del door.users["costly"]
    assert await door.log_in("costly", b"secret") is None
    again = door.users["costly"] = User("costly", password=rabbitmq_hash(b"other", b"salt"))
    assert await door.log_in("costly", b"secret") is None
    assert await door.log_in("costly", b"other") is again


@pytest.mark.parametrize("change", ["delete", "password"])
async def test_what_changes_while_a_password_is_compared_counts(
    autojump_clock: Any, door: Door, nursery: trio.Nursery, change: str
) -> None:
    found: list[User | None] = []

    async def log_in() -> None:
        found.append(await door.log_in("costly", b"secret"))

    nursery.start_soon(log_in)
    await trio.sleep(door.hashing.takes_s / 2)
    if change == "delete":
        door.users.pop("costly").revoke()
    else:
        door.users["costly"].password = rabbitmq_hash(b"another", b"salt")
    await trio.sleep(2 * DELAY_S)
    assert found == [None]


async def flood(door: Door, nursery: trio.Nursery, count: int, host: str) -> None:
    door.keeper._nobody = rabbitmq_hash(b"nobody's", b"salt")  # to save the time of so many
    for number in range(count):
        nursery.start_soon(door.log_in, f"guess{number}", b"x", host)
    await trio.testing.wait_all_tasks_blocked()


async def test_too_many_guesses_are_refused_unseen(
    autojump_clock: Any, door: Door, nursery: trio.Nursery
) -> None:
    await door.log_in("cheap", b"secret")
    await flood(door, nursery, login.OPEN_FROM_ONE_ADDRESS_MAX, ABROAD)
    before, hashed = trio.current_time(), door.hashing.count
    assert await door.log_in("costly", b"secret", ABROAD) is None, "right, and not looked at"
    assert await door.log_in("costly", b"wrong", ABROAD) is None
    assert (trio.current_time(), door.hashing.count) == (before, hashed)
    assert await door.log_in("cheap", b"secret", ABROAD) is not None, "who is known is let in"
    assert await door.log_in("costly", b"secret", HOME) is not None, "as are others elsewhere"


async def test_guesses_from_everywhere_are_bounded_too(
    autojump_clock: Any, door: Door, nursery: trio.Nursery
) -> None:
    for number in range(login.OPEN_MAX // login.OPEN_FROM_ONE_ADDRESS_MAX):
        await flood(door, nursery, login.OPEN_FROM_ONE_ADDRESS_MAX, f"192.0.2.{number}")
    assert await door.log_in("costly", b"secret", HOME) is None
    assert await door.keeper.admit("stranger", HOME) is None


@pytest.mark.parametrize(
    "flooders",
    [[ABROAD], ["2001:db8::1", "2001:db8::2", "2001:db8::f:0:0:0"], ["::ffff:1.2.3.4"]],
)
async def test_a_flood_from_one_place_keeps_nobody_else_waiting(
    autojump_clock: Any, door: Door, nursery: trio.Nursery, flooders: list[str]
) -> None:
    """The addresses of a /64 are one place. Others wait for two hashes at most."""
    await door.keeper._hash_of_nobody()
    for number in range(100):
        nursery.start_soon(door.log_in, f"guess{number}", b"x", flooders[number % len(flooders)])
    await trio.testing.wait_all_tasks_blocked()
    before = trio.current_time()
    assert await door.log_in("costly", b"secret", HOME) is not None
    assert trio.current_time() - before <= 2 * door.hashing.takes_s
    nursery.cancel_scope.cancel()


async def test_each_place_has_its_turn(
    autojump_clock: Any, door: Door, nursery: trio.Nursery
) -> None:
    """Two places that flood use both threads; a third waits for a hash, not for their queues."""
    await door.keeper._hash_of_nobody()
    for number in range(100):
        nursery.start_soon(door.log_in, "guess", b"x", f"192.0.2.{number % 2}")
    await trio.testing.wait_all_tasks_blocked()
    before = trio.current_time()
    assert await door.log_in("costly", b"secret", HOME) is not None
    assert trio.current_time() - before <= 3 * door.hashing.takes_s
    nursery.cancel_scope.cancel()


async def test_after_the_flood_everything_is_as_before(
    autojump_clock: Any, door: Door, nursery: trio.Nursery
) -> None:
    await flood(door, nursery, 2 * login.OPEN_FROM_ONE_ADDRESS_MAX, ABROAD)
    await trio.sleep(1000 * DELAY_S)
    assert not door.keeper._open
    assert await door.log_in("costly", b"secret", ABROAD) is door.users["costly"]


async def test_whoever_gives_up_waiting_takes_no_place(autojump_clock: Any, door: Door) -> None:
    with trio.move_on_after(DELAY_S / 2):
        await door.log_in("costly", b"wrong")
    assert not door.keeper._open


async def test_a_new_password_is_hashed_with_a_salt_of_its_own(
    autojump_clock: Any, door: Door
) -> None:
    one, other = await door.keeper.hash("secret"), await door.keeper.hash("secret")
    assert isinstance(one, PasswordHash)
    assert one.text != other.text
    assert one.matches(b"secret")
