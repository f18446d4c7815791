"""A client of a schema registry: Leveret's, or any other that speaks Confluent's REST API.

It blocks, has no threads and no event loop, can be shared by threads and sent to other processes
(as to Spark's executors). What can never change is remembered: which schema has an id, and which id
a schema has in a subject.

    registry = SchemaRegistry("http://127.0.0.1:15672", user="guest", password="guest")
    schema_id = registry.register("orders-value", schema)

With several addresses, separated by commas, those that do not answer are passed over.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S: Final = 30.0  # for one answer
ATTEMPTS: Final = 4  # to get one, at all addresses each
PAUSE_S: Final = 0.2  # before the next attempt, and twice as long each time
CACHED_MAX: Final = 1000  # schemas, and ids
ANSWER_BYTES_MAX: Final = 64 * 2**20
LATEST: Final = "latest"

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_INVALID: Final = 42201
_SERVER_ERROR: Final = 500

K = TypeVar("K")
V = TypeVar("V")


class SchemaError(Exception):
    """Anything that goes wrong about schemas."""


class RegistryUnreachableError(SchemaError):
    """No address answers, or only with errors of the server's own."""


class RegistryRefusedError(SchemaError):
    """The registry has answered with an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (status {status}, code {code})")
        self.status = status
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.code, self.message)


class SchemaNotFoundError(RegistryRefusedError):
    """There is no such subject, version or schema."""


class IncompatibleSchemaError(RegistryRefusedError):
    """The subject's compatibility level does not allow this schema after those that it has."""


class InvalidSchemaError(RegistryRefusedError):
    """What was given is no schema."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A type that a schema uses, defined by another one."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    references: tuple[Reference, ...] = ()


class _Cache(Generic[K, V]):
    """The last used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._entries[key] = value
            while len(self._entries) > CACHED_MAX:
                self._entries.popitem(last=False)


class SchemaRegistry:
    """Methods raise SchemaError."""

    def __init__(
        self,
        url: str,
        *,
        user: str = "guest",
        password: str = "guest",  # noqa: S107 - of the user that a new broker has
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`token` is one of `POST /api/login`, sent instead of the name and password.

        `tls` is for https addresses; one that has it cannot be sent to other processes.
        """
        self._addresses = [_address(each.strip()) for each in url.split(",")]
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._authorization = f"Bearer {token}" if token is not None else f"Basic {login}"
        self._timeout_s = timeout_s
        self._tls = tls
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._current = 0  # of the addresses: that which answered last
        self._by_id: _Cache[int, tuple[str, tuple[Reference, ...]]] = _Cache()
        self._ids: _Cache[tuple[str, str], int] = _Cache()

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_addresses", "_authorization", "_timeout_s", "_tls")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    # Schemas

    def register(self, subject: str, schema: object, references: Sequence[Reference] = ()) -> int:
        """The schema's id, which it may have had before. A schema is JSON, or a text of it.

        Raises IncompatibleSchemaError if the subject does not take it.
        """
        body = _body(schema, references)
        key = (subject, json.dumps(body, sort_keys=True))
        known = self._ids.get(key)
        if known is not None:
            return known
        answer = self._call("POST", ("subjects", subject, "versions"), body)
        self._ids.put(key, int(answer["id"]))
        return int(answer["id"])

    def schema(self, schema_id: int) -> tuple[str, tuple[Reference, ...]]:
        """The text of a schema, and what it refers to."""
        known = self._by_id.get(schema_id)
        if known is None:
            answer = self._call("GET", ("schemas", "ids", str(schema_id)))
            known = (answer["schema"], _references(answer))
            self._by_id.put(schema_id, known)
        return known

    def look_up(
        self, subject: str, schema: object, references: Sequence[Reference] = ()
    ) -> Registered:
        """Which version a schema is. Raises SchemaNotFoundError if it is none."""
        return _registered(self._call("POST", ("subjects", subject), _body(schema, references)))

    def version(self, subject: str, version: int | str = LATEST) -> Registered:
        return _registered(self._call("GET", ("subjects", subject, "versions", str(version))))

    def objections(
        self,
        subject: str,
        schema: object,
        version: int | str | None = None,
        references: Sequence[Reference] = (),
    ) -> list[str]:
        """Why the subject would not take a schema; nothing if it would.

        It is compared with one version, or with those that its level says.
        """
        path = ["compatibility", "subjects", subject, "versions"]
        if version is not None:
            path.append(str(version))
        body = _body(schema, references)
        answer = self._call("POST", path, body, {"verbose": "true"})
        if answer["is_compatible"]:
            return []
        return list(answer.get("messages") or ["it is not compatible"])

    # Subjects

    def subjects(self) -> list[str]:
        return list(self._call("GET", ("subjects",)))

    def versions(self, subject: str) -> list[int]:
        return list(self._call("GET", ("subjects", subject, "versions")))

    def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """A version, or all of them; those that are deleted by this. For good: after that only."""
        path = ["subjects", subject]
        if version is not None:
            path += ["versions", str(version)]
        query = {"permanent": "true"} if permanent else {}
        answer = self._call("DELETE", path, None, query)
        return answer if isinstance(answer, list) else [answer]

    def level(self, subject: str | None = None) -> str:
        """The compatibility level that counts for a subject, or for those without their own."""
        path = ["config"] if subject is None else ["config", subject]
        return str(self._call("GET", path, None, {"defaultToGlobal": "true"})["compatibilityLevel"])

    def set_level(self, level: str, subject: str | None = None) -> None:
        path = ["config"] if subject is None else ["config", subject]
        self._call("PUT", path, {"compatibility": level})

    # HTTP

    def _call(
        self,
        method: str,
        path: Sequence[str],
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """All of these can be repeated: whatever was done by a lost call is found done."""
        target = "/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += f"?{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        pause_s = PAUSE_S
        problem: Exception | None = None
        for attempt in range(ATTEMPTS * len(self._addresses)):
            if attempt and attempt % len(self._addresses) == 0:
                time.sleep(pause_s)
                pause_s *= 2
            try:
                status, answer = self._exchange(method, target, data)
            except (OSError, http.client.HTTPException) as error:
                problem = error
                continue
            if status < _SERVER_ERROR:
                return _value(status, answer)
            problem = SchemaError(f"status {status}: {answer[:200].decode(errors='replace')}")
            with self._lock:
                self._pass_over()
        raise RegistryUnreachableError(f"no registry answers: {problem}")

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, bytes]:
        headers = {
            "Authorization": self._authorization,
            "Content-Type": CONTENT_TYPE,
            "Accept": CONTENT_TYPE,
        }
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                prefix = self._addresses[self._current][3]
                self._connection.request(method, prefix + target, data, headers)
                response = self._connection.getresponse()
                answer = response.read(ANSWER_BYTES_MAX)
            except (OSError, http.client.HTTPException):
                self._pass_over()
                raise
            if response.will_close:
                self._hang_up()
            return response.status, answer

    def _connect(self) -> http.client.HTTPConnection:
        scheme, host, port, _ = self._addresses[self._current]
        if scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=self._tls
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)

    def _pass_over(self) -> None:
        self._hang_up()
        self._current = (self._current + 1) % len(self._addresses)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _address(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an http or https address")
    return parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/")


def _body(schema: object, references: Sequence[Reference]) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body: dict[str, Any] = {"schema": text, "schemaType": "AVRO"}
    if references:
        body["references"] = [reference.as_json() for reference in references]
    return body


def _references(answer: dict[str, Any]) -> tuple[Reference, ...]:
    given = answer.get("references") or ()
    return tuple(Reference(each["name"], each["subject"], each["version"]) for each in given)


def _registered(answer: dict[str, Any]) -> Registered:
    return Registered(
        subject=answer["subject"],
        version=answer["version"],
        id=answer["id"],
        schema=answer["schema"],
        references=_references(answer),
    )


def _value(status: int, answer: bytes) -> Any:
    try:
        value = json.loads(answer or b"null")
    except ValueError:
        value = None
    if status < http.client.BAD_REQUEST:
        return value
    told = value if isinstance(value, dict) else {}
    code, message = int(told.get("error_code", status)), str(told.get("message", "no reason given"))
    kind: type[RegistryRefusedError] = RegistryRefusedError
    if status == _NOT_FOUND:
        kind = SchemaNotFoundError
    elif status == _CONFLICT:
        kind = IncompatibleSchemaError
    elif code == _INVALID:
        kind = InvalidSchemaError
    raise kind(status, code, message)
