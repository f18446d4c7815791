"""How commands reach a running node: the options that say where it is, and its management API."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

from broker.config import PASSWORD_VARIABLE, URL_VARIABLE, USER_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

HTTP_URL: Final = "http://127.0.0.1:15672"
# The node answers when a change is on its disk and has reached every queue: seconds, if it is busy.
TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 256 * 2**20  # a list of everything, and then some


class AdminError(click.ClickException):
    """The node is not there, or does not do what it was asked to; told in one line."""

    status: int | None = None  # of its answer, if there was one


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A node never sends its callers elsewhere, and who does must not get the password."""

    def redirect_request(self, *_: Any) -> None:
        return None


class AdminClient:
    """Calls a node's management API. A path is given by its parts, which may hold any letters."""

    def __init__(self, url: str, user: str, password: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(f"{url!r} is not an http or https address", param_hint="--url")
        self._url = url.rstrip("/")
        login = base64.b64encode(os.fsencode(f"{user}:{password}")).decode()
        self._headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        # Straight to the node: what is configured for the web does not know it.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)

    def get(self, *path: str) -> Any:
        """What is there, from JSON."""
        return json.loads(self._call("GET", path, None)[1])

    def get_page(self, *path: str, **query: int | str) -> Any:
        """Some of what is there, from JSON."""
        return json.loads(self._call("GET", path, None, urlencode(query))[1])

    def post(self, *path: str, body: object) -> Any:
        """Have something done; what became of it, from JSON."""
        return json.loads(self._call("POST", path, body)[1])

    def put(self, *path: str, body: object) -> bool:
        """Make or change it; whether it is new."""
        return self._call("PUT", path, body)[0] == http.client.CREATED

    def put_for(self, *path: str, body: object) -> Any:
        """Have it be so; what became of it, from JSON."""
        return json.loads(self._call("PUT", path, body)[1])

    def delete(self, *path: str) -> None:
        self._call("DELETE", path, None)

    def at_root(self, method: str, *path: str, body: object = None, **query: str) -> Any:
        """The same for paths that are not under /api, as those of the schema registry."""
        return json.loads(self._call(method, path, body, urlencode(query), root=())[1])

    def _call(
        self,
        method: str,
        path: tuple[str, ...],
        body: object,
        query: str = "",
        root: tuple[str, ...] = ("api",),
    ) -> tuple[int, bytes]:
        parts = (quote(os.fsencode(part), safe="") for part in (*root, *path))
        target = "/".join([self._url, *parts])
        if query:
            target += f"?{query}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            target, data=data, headers=self._headers, method=method
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except urllib.error.URLError as error:
            text = f"cannot reach a node at {self._url}: {error.reason}; --url says where to look"
            raise AdminError(text) from None
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(f"the node at {self._url} did not answer: {error}") from None

    def _refusal(self, error: urllib.error.HTTPError) -> AdminError:
        try:
            told = json.loads(error.read(ANSWER_BYTES_MAX))
            reason = told["message"] if "error_code" in told else told["reason"]
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            reason = f"{error.code} {error.reason}"
        if error.code == http.client.UNAUTHORIZED:
            reason = f"not authorised: {reason}; check --user and --password"
        refusal = AdminError(str(reason))
        refusal.status = error.code
        return refusal


def node_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which node, and call it with a `client` for that."""

    @click.option(
        "--url",
        default=HTTP_URL,
        envvar=URL_VARIABLE,
        show_default=True,
        show_envvar=True,
        help="The node's HTTP address.",
    )
    @click.option(
        "--user",
        default="guest",
        envvar=USER_VARIABLE,
        show_default=True,
        show_envvar=True,
        help="Who to log in as.",
    )
    @click.option(
        "--password",
        default="guest",
        envvar=PASSWORD_VARIABLE,
        show_envvar=True,
        help="The user's password.",
    )
    @functools.wraps(command)
    def with_client(*, url: str, user: str, password: str, **arguments: Any) -> None:
        command(client=AdminClient(url, user, password), **arguments)

    return with_client
