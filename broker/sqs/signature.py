"""Signature version 4 of AWS: who signed a request, and whether just this request and just now.

Authorization: AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/sqs/aws4_request,
               SignedHeaders=host;x-amz-date;…, Signature=HEX
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime
from functools import lru_cache
from posixpath import normpath
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from broker.sqs.errors import BAD_SIGNATURE, HALF_SIGNED, SqsError

if TYPE_CHECKING:
    from broker.http.messages import Request

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "sqs"
SKEW_S: Final = 15 * 60  # as long as AWS lets a signature count, and a clock be wrong
SIGNING_KEYS_MAX: Final = 1024  # remembered; a client has one for each day and region

_FIELDS: Final = re.compile(r"(\w+)=([^,\s]+)")
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_SPACES: Final = re.compile(r" +")


class Claim(NamedTuple):
    """What the header Authorization says."""

    key_id: str
    date: str
    region: str
    signed_headers: list[str]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{SERVICE}/aws4_request"


def is_signed(request: Request) -> bool:
    return request.headers.get("authorization", "").startswith(ALGORITHM)


def read_claim(request: Request) -> Claim:
    """Raises SqsError where the header is not as it must be."""
    header = request.headers["authorization"]
    fields = dict(_FIELDS.findall(header.removeprefix(ALGORITHM)))
    try:
        scope = fields["Credential"].rsplit("/", 4)
        key_id, date, region, service, end = scope
        signed, signature = fields["SignedHeaders"].split(";"), fields["Signature"]
    except (KeyError, ValueError):
        raise SqsError(
            HALF_SIGNED,
            "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'.",
        ) from None
    if service != SERVICE or end != "aws4_request":
        raise SqsError(BAD_SIGNATURE, f"Credential should be scoped to service '{SERVICE}'.")
    return Claim(key_id, date, region, signed, signature)


def mismatch() -> SqsError:
    return SqsError(
        BAD_SIGNATURE,
        "The request signature we calculated does not match the signature you provided. "
        "Check your AWS Secret Access Key and signing method.",
    )


class Verifier:
    """Checks claims. It remembers keys that it derived: they are the same all day."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str], bytes] = {}

    def check(self, request: Request, claim: Claim, secret: str, now_s: float) -> None:
        """Raise SqsError unless the secret made this claim, for this request, a moment ago."""
        signed_at = _signed_at(request, claim, now_s)
        unsigned = [
            name
            for name in request.headers
            if (name == "host" or name.startswith("x-amz-")) and name not in claim.signed_headers
        ]
        if unsigned or "host" not in claim.signed_headers:
            names = ", ".join(unsigned or ["host"])
            raise SqsError(BAD_SIGNATURE, f"These headers must be signed: {names:.200}.")
        digest = hashlib.sha256(_canonical(request, claim.signed_headers)).hexdigest()
        to_sign = f"{ALGORITHM}\n{signed_at}\n{claim.scope}\n{digest}"
        key = self._signing_key(secret, claim.date, claim.region)
        expected = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), claim.signature.encode("utf-8", "replace")):
            raise mismatch()

    def _signing_key(self, secret: str, date: str, region: str) -> bytes:
        found = self._keys.get((secret, date, region))
        if found is None:
            found = f"AWS4{secret}".encode()
            for part in (date, region, SERVICE, "aws4_request"):
                found = hmac.new(found, part.encode(), hashlib.sha256).digest()
            if len(self._keys) >= SIGNING_KEYS_MAX:
                self._keys.clear()
            self._keys[secret, date, region] = found
        return found


@lru_cache(maxsize=64)  # many requests are signed within the same second
def _seconds(text: str) -> float:
    return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()


def _signed_at(request: Request, claim: Claim, now_s: float) -> str:
    text = request.headers.get("x-amz-date", "")
    try:
        signed_s = _seconds(text)
    except ValueError:
        raise SqsError(
            HALF_SIGNED, "The header X-Amz-Date is needed, as 20130524T000000Z."
        ) from None
    if text[:8] != claim.date:
        raise SqsError(BAD_SIGNATURE, "The date in Credential is not that of X-Amz-Date.")
    if abs(signed_s - now_s) > SKEW_S:
        now = datetime.fromtimestamp(now_s, UTC).strftime(_TIME_FORMAT)
        wrong = "expired" if signed_s < now_s else "not yet current"
        why = f"{text} is more than {SKEW_S // 60} minutes from {now}."
        raise SqsError(BAD_SIGNATURE, f"Signature {wrong}: {why}")
    return text


def _canonical(request: Request, signed: list[str]) -> bytes:
    headers = request.headers
    lines = [f"{name}:{_SPACES.sub(' ', headers.get(name, '').strip())}\n" for name in signed]
    parts = (
        request.method,
        quote(_normal_path(request.path), safe="/~"),
        _canonical_query(request),
        "".join(lines),
        ";".join(signed),
        hashlib.sha256(request.body).hexdigest(),
    )
    return "\n".join(parts).encode("latin-1", "replace")


def _normal_path(path: str) -> str:
    if path == "/":
        return path
    normal = normpath(path)
    return f"{normal}/" if path.endswith("/") and normal != "/" else normal


def _canonical_query(request: Request) -> str:
    if not request.query:
        return ""
    pairs = [
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, values in request.query.items()
        for value in values
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
