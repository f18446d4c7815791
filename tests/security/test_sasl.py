"""What clients say who they are: SASL responses, and where they call from."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode

from broker.security import sasl
from broker.security.sasl import Origin


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1%lo", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_by_whatever_address(host: str, *, loopback: bool) -> None:
    assert Origin(host, 5000).is_loopback is loopback


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
    assert sasl.parse_plain(response) == parts


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"\0a\0b\0c", b"\0\xff\0p"])
def test_a_malformed_plain_response_is_an_error(response: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        sasl.parse_plain(response)


def amqplain(table: dict[str, object]) -> bytes:
    return encode.field_table(table)[4:]  # type: ignore[arg-type]


def test_an_amqplain_response_is_a_table_without_its_length() -> None:
    response = amqplain({"LOGIN": "guest", "PASSWORD": "sécret"})
    assert sasl.parse_amqplain(response) == ("guest", "sécret".encode())


def test_an_amqplain_password_may_be_any_bytes() -> None:
    response = amqplain({"LOGIN": "guest"}) + b"\x08PASSWORDS" + struct.pack(">I", 2) + b"\xff\xfe"
    assert sasl.parse_amqplain(response) == ("guest", b"\xff\xfe")


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
        sasl.parse_amqplain(response)


def test_deeply_nested_amqplain_tables_are_an_error_not_a_crash() -> None:
    response = b""
    for _ in range(5000):
        response = b"\x01aF" + struct.pack(">I", len(response)) + response
    with pytest.raises(ValueError, match="nested"):
        sasl.parse_amqplain(response)


@given(st.binary(max_size=200))
def test_random_bytes_never_break_the_parsers(response: bytes) -> None:
    for parse in (sasl.parse_plain, sasl.parse_amqplain):
        try:
            parse(response)
        except ValueError:
            continue
