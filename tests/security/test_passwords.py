"""What is kept of passwords."""

from __future__ import annotations

import base64

import pytest

from broker.security import passwords
from broker.security.passwords import (
    NO_PASSWORD,
    SCRYPT,
    SHA256,
    SHA512,
    PasswordHash,
    hash_password,
    rabbitmq_hash,
)

# The worked example in RabbitMQ's "Passwords" guide: this salt, the password test12.
DOCUMENTED_SALT = bytes.fromhex("908DC60A")
DOCUMENTED_HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
SALT = bytes(range(16))


def scrypt_of(log2_n: int, r: int, p: int) -> str:
    return base64.b64encode(bytes([log2_n, r, p]) + bytes(48)).decode()


def test_a_password_is_hashed_as_in_rabbitmqs_documentation() -> None:
    assert rabbitmq_hash(b"test12", DOCUMENTED_SALT) == PasswordHash(SHA256, DOCUMENTED_HASH)


def test_a_new_password_is_hashed_with_memory_and_salt() -> None:
    one, other = hash_password(b"secret", SALT), hash_password(b"secret", SALT[::-1])
    assert one.algorithm == SCRYPT
    assert one.text != other.text
    for stored in (one, other):
        assert PasswordHash.parse(stored.algorithm, stored.text).matches(b"secret")
        for wrong in (b"Secret", b"secret\0", b"secre"):
            assert not stored.matches(wrong)


def test_hashes_that_rabbitmq_exports_are_taken() -> None:
    salt = bytes.fromhex("01020304")
    digest = passwords.hashlib.sha512(salt + b"s3cret").digest()
    sha512 = PasswordHash.parse(SHA512, base64.b64encode(salt + digest).decode())
    assert sha512.matches(b"s3cret")
    assert not sha512.matches(b"s3cre")
    assert PasswordHash.parse(SHA256, DOCUMENTED_HASH).matches(b"test12")


def test_an_empty_password_is_never_right() -> None:
    assert not rabbitmq_hash(b"", b"salt").matches(b"")
    assert not hash_password(b"", SALT).matches(b"")
    assert not NO_PASSWORD.matches(b"")


def test_no_password_is_right_where_there_is_none() -> None:
    for algorithm in passwords.ALGORITHMS:
        assert not PasswordHash.parse(algorithm, "").matches(b"secret")


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        (SHA256, "AAAA"),
        (SHA256, "not base64!"),
        (SHA256, base64.b64encode(b"x" * 37).decode()),
        (SHA512, DOCUMENTED_HASH),
        (SCRYPT, DOCUMENTED_HASH),
        ("rabbit_password_hashing_md5", DOCUMENTED_HASH),
        ("", DOCUMENTED_HASH),
        (SCRYPT, scrypt_of(0, 8, 1)),
        (SCRYPT, scrypt_of(15, 0, 1)),
        (SCRYPT, scrypt_of(15, 8, 0)),
        (SCRYPT, scrypt_of(15, 8, 17)),
        (SCRYPT, scrypt_of(30, 8, 1)),
        (SCRYPT, scrypt_of(255, 255, 1)),
    ],
)
def test_what_is_not_a_hash_or_costs_too_much_is_refused(algorithm: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|bytes long|algorithm|costs"):
        PasswordHash.parse(algorithm, text)


def test_the_most_costly_hash_that_is_taken_can_be_compared() -> None:
    assert not PasswordHash.parse(SCRYPT, scrypt_of(18, 8, 1)).matches(b"x")


def test_a_hash_is_not_shown() -> None:
    assert DOCUMENTED_HASH not in repr(PasswordHash(SHA256, DOCUMENTED_HASH))
