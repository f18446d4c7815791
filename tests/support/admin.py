"""The management API as tests call it."""

import base64
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote

TIMEOUT_S = 60.0


class Answer(NamedTuple):
    status: int
    json: Any  # None if there is no body
    headers: dict[str, str]


class Api:
    """One connection to a node's HTTP port. A path is given by its parts."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        timeout_s: float = TIMEOUT_S,
    ):
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self.headers = {"Authorization": basic(user, password)}

    def call(self, method: str, *path: str, body: object = None, query: str = "") -> Answer:
        target = "/api/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += f"?{query}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(method, target, data, self.headers)

    def post_to(self, target: str, body: object, headers: dict[str, str]) -> Answer:
        """To a path outside of /api, with headers beside one's own."""
        return self._ask("POST", target, json.dumps(body).encode(), self.headers | headers)

    def _ask(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        self._connection.request(method, target, data, headers)
        response = self._connection.getresponse()
        raw = response.read()
        return Answer(
            response.status, json.loads(raw) if raw else None, dict(response.getheaders())
        )

    def close(self) -> None:
        self._connection.close()

    # Policies

    def put_policy(
        self, name: str, pattern: str, definition: dict[str, Any], **parts: Any
    ) -> Answer:
        """Set a policy; `kind` is "operator-policies" for an operator's."""
        kind, vhost = parts.pop("kind", "policies"), parts.pop("vhost", "/")
        body = {"pattern": pattern, "definition": definition, **parts}
        return self.call("PUT", kind, vhost, name, body=body)

    def delete_policy(self, name: str, *, kind: str = "policies", vhost: str = "/") -> Answer:
        return self.call("DELETE", kind, vhost, name)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
