"""Logging in and what a user may do, with RabbitMQ's meaning."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import encode

from broker import auth
from broker.auth import Permission, User, Users, compile_pattern, hash_password
from broker.config import PermissionConfig, UserConfig

# The worked example in RabbitMQ's "Passwords" guide: this salt, the password test12.
DOCUMENTED_SALT = bytes.fromhex("908DC60A")
DOCUMENTED_HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def user_who_may(configure: str = "", write: str = "", read: str = "", vhost: str = "/") -> User:
    config = PermissionConfig(vhost=vhost, configure=configure, write=write, read=read)
    return User("u", tags=(), permissions={vhost: Permission.from_config(config)})


def make_users() -> Users:
    return Users(
        [
            UserConfig(name="guest", password="guest", tags=("administrator",)),
            UserConfig(name="stored", password_hash=DOCUMENTED_HASH),
            UserConfig(name="blank", password_hash=hash_password(b"", b"salt")),
        ],
        loopback_users=("guest",),
    )


def test_a_password_is_hashed_as_in_rabbitmqs_documentation() -> None:
    assert hash_password(b"test12", DOCUMENTED_SALT) == DOCUMENTED_HASH


def test_a_user_with_a_stored_hash_logs_in_with_the_password_it_was_made_of() -> None:
    users = make_users()
    user = users.authenticate("stored", b"test12", peer_is_loopback=False)
    assert user is not None
    assert user.name == "stored"
    assert users.authenticate("stored", b"test13", peer_is_loopback=False) is None


def test_a_user_with_a_plain_password_logs_in_and_keeps_its_tags() -> None:
    user = make_users().authenticate("guest", b"guest", peer_is_loopback=True)
    assert user is not None
    assert user.tags == {"administrator"}


def test_a_loopback_user_is_refused_from_elsewhere() -> None:
    assert make_users().authenticate("guest", b"guest", peer_is_loopback=False) is None


@pytest.mark.parametrize("name", ["", "nobody", "GUEST", "guest\0"])
def test_an_unknown_user_is_refused(name: str) -> None:
    assert make_users().authenticate(name, b"guest", peer_is_loopback=True) is None


def test_an_empty_password_is_never_right() -> None:
    users = make_users()
    assert users.authenticate("blank", b"", peer_is_loopback=True) is None
    assert users.authenticate("nobody", b"", peer_is_loopback=True) is None


def test_an_unknown_user_costs_one_hash_and_one_comparison_like_a_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    users = make_users()
    for name in ("stored", "nobody"):
        users.authenticate(name, b"wrong", peer_is_loopback=True)
    assert compared == [(32, 32), (32, 32)]


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("^orders", "orders.new", True),
        ("^orders", "my-orders", False),
        ("orders", "my-orders.new", True),  # searched for, not anchored
        ("^orders$", "orders.new", False),
        ("^(a|b)$", "b", True),
        ("", "orders", False),  # the empty pattern is ^$ …
        ("", "", False),  # … and the default exchange's name is amq.default
        ("^$", "orders", False),
        ("^amq\\.default$", "", True),
        ("^amq\\.gen", "amq.gen-x", True),
        ("ORDERS", "orders", False),
        ("^a.b$", "a\nb", False),
    ],
)
def test_a_permission_is_a_regular_expression_searched_for_in_the_name(
    pattern: str, name: str, *, allowed: bool
) -> None:
    user = user_who_may(write=pattern)
    assert user.may("/", "write", name) is allowed
    assert user.may("/", "write", name) is allowed, "asked again, out of the cache"


def test_each_action_has_its_own_pattern() -> None:
    user = user_who_may(configure="^c$", write="^w$", read="^r$")
    granted = {
        (action, name)
        for action in ("configure", "write", "read")
        for name in "cwr"
        if user.may("/", action, name)  # type: ignore[arg-type]
    }
    assert granted == {("configure", "c"), ("write", "w"), ("read", "r")}


def test_permissions_hold_in_their_own_vhost_only() -> None:
    user = user_who_may(".*", ".*", ".*", vhost="shop")
    assert user.may_enter("shop")
    assert not user.may_enter("/")
    assert user.may("shop", "read", "q")
    assert not user.may("/", "read", "q")


def test_a_permission_that_grants_nothing_still_opens_the_vhost() -> None:
    assert user_who_may().may_enter("/")


def test_remembered_decisions_are_bounded_and_stay_right() -> None:
    user = user_who_may(write="7$")
    for number in range(3 * auth.CACHED_DECISIONS_MAX):
        assert user.may("/", "write", str(number)) is (number % 10 == 7)
        assert len(user._decisions) <= auth.CACHED_DECISIONS_MAX


@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?P<a>", "[[:alpha:]]", "a{2,1}"])
def test_what_python_and_rabbitmq_would_read_differently_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "stored", ["", "AAAA", "not base64!", base64.b64encode(b"x" * 37).decode()]
)
def test_what_is_not_a_salt_and_a_digest_is_no_password_hash(stored: str) -> None:
    with pytest.raises(ValueError, match=r"base64|bytes long"):
        auth.decode_password_hash(stored)


@pytest.mark.parametrize(
    ("response", "parts"),
    [
        (b"\0guest\0guest", ("", "guest", b"guest")),
        (b"admin\0guest\0guest", ("admin", "guest", b"guest")),
        (b"\0guest\0", ("", "guest", b"")),
        ("\0zoë\0pä".encode(), ("", "zoë", "pä".encode())),
        (b"\0guest\0\xff\xfe", ("", "guest", b"\xff\xfe")),
    ],
)
def test_a_plain_response_has_three_parts(response: bytes, parts: tuple[str, str, bytes]) -> None:
    assert auth.parse_plain(response) == parts


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"\0a\0b\0c", b"\0\xff\0p"])
def test_a_malformed_plain_response_is_an_error(response: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        auth.parse_plain(response)


def amqplain(table: dict[str, object]) -> bytes:
    return encode.field_table(table)[4:]  # type: ignore[arg-type]


def test_an_amqplain_response_is_a_table_without_its_length() -> None:
    response = amqplain({"LOGIN": "guest", "PASSWORD": "sécret"})
    assert auth.parse_amqplain(response) == ("guest", "sécret".encode())


def test_an_amqplain_password_may_be_any_bytes() -> None:
    response = amqplain({"LOGIN": "guest"}) + b"\x08PASSWORDS" + struct.pack(">I", 2) + b"\xff\xfe"
    assert auth.parse_amqplain(response) == ("guest", b"\xff\xfe")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\0guest\0guest",
        amqplain({"LOGIN": "guest"}),
        amqplain({"PASSWORD": "guest"}),
        amqplain({"LOGIN": 1, "PASSWORD": "guest"}),
        amqplain({"LOGIN": "guest", "PASSWORD": True}),
        amqplain({"LOGIN": "guest", "PASSWORD": "guest"})[:-1],
        b"\x05LOGIN",
        b"\x05LOGINA" + b"\xff" * 8,
        b"\x01aF\xff\xff\xff\xff",
        b"\x05LOGINS\0\0\0\x02\xff\xfe\x08PASSWORDS\0\0\0\x01p",
    ],
)
def test_a_malformed_amqplain_response_is_an_error(response: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        auth.parse_amqplain(response)


def test_deeply_nested_amqplain_tables_are_an_error_not_a_crash() -> None:
    response = b""
    for _ in range(5000):
        response = b"\x01aF" + struct.pack(">I", len(response)) + response
    with pytest.raises(ValueError, match="nested"):
        auth.parse_amqplain(response)


@settings(derandomize=True)
@given(st.binary(max_size=200))
def test_random_bytes_never_break_the_parsers(response: bytes) -> None:
    for parse in (auth.parse_plain, auth.parse_amqplain):
        try:
            parse(response)
        except ValueError:
            continue
