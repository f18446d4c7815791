"""Stored passwords: ours, which take memory and time to guess, and those that RabbitMQ exports.

    leveret_scrypt                  base64( log2 N: u8 | r: u8 | p: u8 | salt: 16
                                            | scrypt(BLAKE2b(password), salt, N, r, p): 32 )
    rabbit_password_hashing_sha256  base64( salt: 4 | SHA-256(salt + password): 32 )
    rabbit_password_hashing_sha512  base64( salt: 4 | SHA-512(salt + password): 64 )

An empty hash is of no password: such a user comes in by certificate only.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

SCRYPT: Final = "leveret_scrypt"
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
ALGORITHMS: Final = (SCRYPT, SHA256, SHA512)

SCRYPT_SALT_BYTES: Final = 16
SCRYPT_DIGEST_BYTES: Final = 32
SCRYPT_HEAD_BYTES: Final = 3
# 32 MiB and a tenth of a second: nothing to a user, much to whoever tries a dictionary.
SCRYPT_LOG2_N: Final = 15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
# An imported hash says itself what it costs; this much, and no more, may it ask for.
SCRYPT_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
SCRYPT_P_MAX: Final = 16

SALT_BYTES: Final = 4  # of RabbitMQ's
_DIGESTS: Final = {SHA256: hashlib.sha256, SHA512: hashlib.sha512}


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is kept of a password. Nothing of it is shown in logs."""

    algorithm: str
    text: str = field(repr=False)

    @classmethod
    def parse(cls, algorithm: str, text: str) -> "PasswordHash":
        """As it was stored, or comes from a RabbitMQ; ValueError if it is not one."""
        if algorithm not in ALGORITHMS:
            raise ValueError(f"of an unknown algorithm; known are {', '.join(ALGORITHMS)}")
        if text:
            _check(algorithm, _decode(text))
        return cls(algorithm, text)

    def matches(self, password: bytes) -> bool:
        """Whether it is of this password. May take a tenth of a second: not for the loop.

        As in RabbitMQ an empty password is never right, even if the hash is of one.
        """
        if not password or not self.text:
            return False
        raw = _decode(self.text)
        if self.algorithm == SCRYPT:
            log2_n, r, p = raw[:SCRYPT_HEAD_BYTES]
            salt = raw[SCRYPT_HEAD_BYTES:-SCRYPT_DIGEST_BYTES]
            digest = _scrypt(password, salt, log2_n, r, p)
            return hmac.compare_digest(digest, raw[-SCRYPT_DIGEST_BYTES:])
        digest = _DIGESTS[self.algorithm](raw[:SALT_BYTES] + password).digest()
        return hmac.compare_digest(digest, raw[SALT_BYTES:])

    @property
    def is_costly(self) -> bool:
        """Whether comparing takes memory and time."""
        return self.algorithm == SCRYPT and bool(self.text)


NO_PASSWORD: Final = PasswordHash(SHA256, "")


def hash_password(password: bytes, salt: bytes) -> PasswordHash:
    """What is to be kept of a new password. Takes a tenth of a second: not for the loop."""
    assert len(salt) == SCRYPT_SALT_BYTES
    head = bytes([SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P])
    digest = _scrypt(password, salt, SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P)
    return PasswordHash(SCRYPT, base64.b64encode(head + salt + digest).decode("ascii"))


def rabbitmq_hash(password: bytes, salt: bytes) -> PasswordHash:
    """What RabbitMQ keeps of a password, by default."""
    assert len(salt) == SALT_BYTES
    digest = hashlib.sha256(salt + password).digest()
    return PasswordHash(SHA256, base64.b64encode(salt + digest).decode("ascii"))


def _scrypt(password: bytes, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    # Of the same length for all: scrypt by itself does not tell a password from one with NULs
    # behind it, nor a long one from its digest.
    return hashlib.scrypt(
        hashlib.blake2b(password).digest(),
        salt=salt,
        n=1 << log2_n,
        r=r,
        p=p,
        maxmem=2 * SCRYPT_MEMORY_BYTES_MAX,
        dklen=SCRYPT_DIGEST_BYTES,
    )


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error


def _check(algorithm: str, raw: bytes) -> None:
    if algorithm == SCRYPT:
        size = SCRYPT_HEAD_BYTES + SCRYPT_SALT_BYTES + SCRYPT_DIGEST_BYTES
    else:
        size = SALT_BYTES + _DIGESTS[algorithm]().digest_size
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes long instead of {size}")
    if algorithm == SCRYPT:
        log2_n, r, p = raw[:SCRYPT_HEAD_BYTES]
        too_large = 128 * r * (1 << min(log2_n, 32)) > SCRYPT_MEMORY_BYTES_MAX
        if not (log2_n and r and p) or too_large or p > SCRYPT_P_MAX:
            raise ValueError(f"of costs that are not taken (N=2^{log2_n}, r={r}, p={p})")
