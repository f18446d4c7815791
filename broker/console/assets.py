"""The console's files, read once, and how they are given to browsers.

`/` is the page; what it loads is below `/console/`. Each file has a route of its own, so that no
path of a request is ever looked up on the disk.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from broker.http.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from broker.http.router import RouteHandler, Router

PAGE: Final = "index.html"
PREFIX: Final = "/console/"
CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts, styles and data from this node and nowhere else, none of them inline, and no way to make
# HTML or script out of a text: names of queues are whatever somebody called them.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    # Asked about each time, which costs a 304: a page must never meet scripts of another version.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the console."""

    body: bytes
    content_type: str
    etag: str

    def answer(self, request: Request) -> Response:
        headers = HEADERS | {"Content-Type": self.content_type, "ETag": self.etag}
        if is_known(request.headers.get("if-none-match", ""), self.etag):
            return Response(status=NOT_MODIFIED, headers=headers)
        return Response(headers=headers, body=self.body)


def add_console(router: Router) -> None:
    """Routes for the page and its files; they need no login, since all data does."""
    assets = load_assets()
    router.add("GET", "/", _handler(assets[PAGE]), listed=False)
    for path, asset in assets.items():
        if path != PAGE:
            router.add("GET", PREFIX + path, _handler(asset), listed=False)


def load_assets() -> dict[str, Asset]:
    """All files by their paths, as the page names them."""
    root = files("broker.console").joinpath("static")
    return {path: _asset(path, file.read_bytes()) for path, file in _walk(root, "")}


def _walk(directory: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(directory.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif _suffix(entry.name) in CONTENT_TYPES:
            yield prefix + entry.name, entry


def _asset(path: str, body: bytes) -> Asset:
    digest = hashlib.sha256(body).hexdigest()[:32]
    return Asset(body, CONTENT_TYPES[_suffix(path)], f'"{digest}"')


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


def is_known(if_none_match: str, etag: str) -> bool:
    """Whether a browser says that it has this version."""
    said = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in said or "*" in said


def _handler(asset: Asset) -> RouteHandler:
    async def answer(request: Request) -> Response:
        return asset.answer(request)

    return answer
