"""Which pages may have a browser send something here, and under which names this node is called.

Browsers add a remembered Basic password to whatever any page has them send. Two things tell such
requests apart: `Sec-Fetch-Site`, which browsers leave out for plain HTTP to other machines, and
`Origin`, which they send with every change. And a page of another site can have its own name lead
to this machine (DNS rebinding), after which its requests are of the same origin: where a node
listens on loopback only, just the names of loopback are its own.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from broker.http.messages import HttpError

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker.http.messages import Request

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGES: Final = frozenset({"same-origin", "none"})
_PORTS: Final = {"http": 80, "https": 443}


def refuse_other_sites(request: Request, *, listens_on: str, names: Collection[str]) -> None:
    """HttpError 403; `names` are further ones of this node, which `http_hosts` gives it."""
    host = request.headers.get("host", "")
    name = _split(f"//{host}", request.scheme)[0]
    if host and is_loopback_name(listens_on) and name not in names and not is_loopback_name(name):
        raise HttpError(403, "this node is not called by that name (see http_hosts)")
    if request.method in SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site", "none") not in _OWN_PAGES or (
        origin is not None and not _is_own(origin, host, names)
    ):
        raise HttpError(403, "requests from pages of other sites are refused")


def _is_own(origin: str, host: str, names: Collection[str]) -> bool:
    scheme = origin.partition(":")[0]
    found = _split(origin, scheme)
    return scheme in _PORTS and (found == _split(f"//{host}", scheme) or found[0] in names)


def _split(url: str, scheme: str) -> tuple[str, int]:
    """Name and port; no name for what is none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(scheme, 0)
    except ValueError:
        return "", 0


def is_loopback_name(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
