"""Every route of the HTTP port with the right tag, vhost and permissions, and without each of them.

The routes are asked of the broker itself: one that has no line in the matrix fails here.
"""

import base64
import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from broker.sqs.door import OPERATIONS
from tests.management.test_permissions import HASHED
from tests.security.http_matrix import MATRIX, SQS_NEEDS
from tests.support.admin import basic
from tests.support.process import ROOT, TRACEBACK, BrokerProcess, clean_environment

TAGS = ("", "management", "policymaker", "monitoring", "administrator")
REFUSALS = (401, 403)
# Not looked at here: what nodes ask each other, which is 404 to clients; files of the console,
# which are open; and the schema registry, which has tests of its own.
ELSEWHERE = ("/api/internal/", "/console/")
REGISTRY = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts")
TIMEOUT_S = 60


class Line(NamedTuple):
    method: str
    path: str
    whom: str
    vhost: str = "-"
    needs: tuple[str, ...] = ()


def parse(text: str) -> Line:
    method, path, whom, *rest = text.split()
    return Line(method, path, whom, *rest[:1], *([tuple(rest[1:])] if rest[1:] else []))


LINES = [parse(text) for text in MATRIX.splitlines() if text]
NAMES = [f"{line.method} {line.path}" for line in LINES]
every_line = pytest.mark.parametrize("line", LINES, ids=NAMES)
RECORD = """
import json, os, signal, sys
from functools import partial
from pathlib import Path
import trio
from broker.config import Config
from broker.http.router import Router
from broker import server

routes, add = [], Router.add

def record(self, method, pattern, handler, **options):
    routes.append((method, pattern))
    add(self, method, pattern, handler, **options)

def announce(_line):
    print(json.dumps(routes))
    os.kill(os.getpid(), signal.SIGTERM)

Router.add = record
config = Config(data_dir=Path(sys.argv[1]), amqp_port=0, http_port=0)
trio.run(partial(server.serve, config, announce=announce))
"""


def test_every_route_has_a_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RECORD, str(tmp_path / "data")],
        cwd=ROOT,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    there = {(method, path) for method, path in json.loads(ran.stdout.splitlines()[0])}
    looked_at = {one for one in there if not one[1].startswith((*ELSEWHERE, *REGISTRY))}
    assert looked_at == {(line.method, line.path) for line in LINES}
    assert len(LINES) == len(set(NAMES))


# The house


RIGHTS = dict.fromkeys(("configure", "write", "read"), ".*")
USERS = {tag: f"{tag or 'untagged'} user" for tag in TAGS}
SPARE = "somebody"  # whom calls are about
WORKER = "worker"  # whose permissions are changed


def definitions() -> dict[str, Any]:
    """What calls are about, in a vhost that users may enter and in one that they may not."""
    here = [
        {"vhost": vhost, "durable": True, "auto_delete": False, "arguments": {}}
        for vhost in ("mine", "theirs")
    ]
    stream = {"arguments": {"x-queue-type": "stream"}}
    exchange = {"type": "topic", "internal": False}
    return {
        "vhosts": [{"name": name} for name in ("mine", "theirs", "spare", "/")],
        "users": [{"name": SPARE, **HASHED, "tags": ""}],
        "permissions": [{"user": SPARE, "vhost": "spare", **RIGHTS}],
        "queues": [{**one, "name": name} for one in here for name in ("q", "p")]
        + [{**one, **stream, "name": "stream"} for one in here],
        "exchanges": [{**one, **exchange, "name": name} for one in here for name in ("x", "y")],
        "bindings": [
            {
                "vhost": one["vhost"],
                "source": "x",
                "destination": to,
                "destination_type": kind,
                "routing_key": "k",
                "arguments": {},
            }
            for one in here
            for to, kind in (("q", "queue"), ("y", "exchange"))
        ],
        "policies": [
            {"vhost": vhost, "name": "p1", "pattern": "none", "definition": {"max-length": 1}}
            for vhost in ("mine", "theirs")
        ],
    }


class House:
    """A broker, and a caller of each kind."""

    def __init__(self, node: BrokerProcess) -> None:
        self._address = node.host, node.http_port
        self.restore()
        for tag, name in USERS.items():
            self.add_user(name, tag)
        self.add_user(WORKER, "management")

    def add_user(self, name: str, tag: str) -> None:
        self.administer("PUT", "users", name, body={**HASHED, "tags": tag})
        for vhost in ("mine", "/"):
            self.administer("PUT", "permissions", vhost, name, body=RIGHTS)

    def permit(self, needs: tuple[str, ...]) -> None:
        """The worker gets these permissions and no others."""
        names: dict[str, list[str]] = {"configure": [], "write": [], "read": []}
        for need in needs:
            action, _, name = need.partition(":")
            names[action].append(f"^{name}$")
        rights = {action: "|".join(patterns) for action, patterns in names.items()}
        self.administer("PUT", "permissions", "mine", WORKER, body=rights)

    def restore(self) -> None:
        self.administer("POST", "definitions", body=definitions())

    def administer(self, method: str, *path: str, body: object) -> None:
        target = "/api/" + "/".join(quote(part, safe="") for part in path)
        assert self.send(method, target, basic("guest", "guest"), body) in (201, 204), path

    def status(self, line: Line, login: str | None, vhost: str = "mine") -> int:
        """What a call is answered with; `login` is the header."""
        return self.send(line.method, target(line, vhost), login, body_of(line))

    def send(self, method: str, path: str, login: str | None, body: object) -> int:
        headers = {"Content-Type": "application/json"} | ({"Authorization": login} if login else {})
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            response.read()
        return response.status


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    node = BrokerProcess(tmp_path_factory.mktemp("matrix"), "--auth-failure-delay-s", "0")
    house = House(node)
    yield house
    node.assert_sound()
    assert node.stop() == 0, node.log_text()
    assert TRACEBACK not in node.log_text()


# Calls

PLACES = {
    "name": "q",
    "source": "x",
    "key": "k",
    "user": SPARE,
    "topic": "stream",
    "group": "group",
    "id": "0",
    "port": "1",
    "protocol": "amqp",
    "within": "1",
    "unit": "days",
    "node": "leveret",
    "component": "none",
    "exchange": "x",
}
SPECIAL = {  # where another name is meant
    "/api/exchanges/{vhost}/{name}": {"name": "x"},
    "/api/exchanges/{vhost}/{name}/publish": {"name": "x"},
    "/api/exchanges/{vhost}/{name}/bindings/source": {"name": "x"},
    "/api/exchanges/{vhost}/{name}/bindings/destination": {"name": "x"},
    "/api/streams/{vhost}/{name}": {"name": "stream"},
    "/api/streams/{vhost}/{name}/offsets": {"name": "stream"},
    "/api/streams/{vhost}/{name}/records": {"name": "stream"},
    "/api/streams/{vhost}/{name}/staged": {"name": "stream"},
    "/api/user-limits/{user}/{name}": {"name": "max-connections"},
    "/api/vhost-limits/{vhost}/{name}": {"name": "max-queues"},
    "/api/global-parameters/{name}": {"name": "parameter"},
}
IN_QUERY = ("/api/admin/topics", "/api/topics/", "/queue/", "/queues/")  # the vhost is there
BODIES: dict[str, object] = {
    "POST /api/login": {"username": USERS["management"], "password": "guest"},
    "PATCH /api/queues/{vhost}/{name}": {"arguments": {"x-max-length": 5}},
    "POST /api/queues/{vhost}/{name}/actions": {"action": "sync"},
    "POST /api/queues/{vhost}/{name}/get": {
        "count": 1,
        "ackmode": "ack_requeue_true",
        "encoding": "auto",
    },
    "POST /api/queues/{vhost}/{name}/messages/{id}/move": {"to": "p"},
    "PUT /api/exchanges/{vhost}/{name}": {"type": "topic"},
    "POST /api/exchanges/{vhost}/{name}/publish": {
        "properties": {},
        "routing_key": "k",
        "payload": "",
        "payload_encoding": "string",
    },
    "POST /api/dlq/{vhost}/{name}/replay": {"ids": [0]},
    "POST /api/dlq/{vhost}/{name}/drop": {"ids": [0]},
    "PUT /api/scheduled/{vhost}/{name}/{id}": {"delay_ms": 1},
    "POST /api/stream-groups/{vhost}/{group}/offsets": {"stream": "stream", "to": "first"},
    "PUT /api/users/{user}": {**HASHED, "tags": ""},
    "PUT /api/permissions/{vhost}/{user}": RIGHTS,
    "PUT /api/topic-permissions/{vhost}/{user}": {"exchange": "x", "write": "", "read": ""},
    "PUT /api/user-limits/{user}/{name}": {"value": -1},
    "PUT /api/vhost-limits/{vhost}/{name}": {"value": -1},
    "PUT /api/global-parameters/{name}": {"value": 1},
    "PUT /api/cluster-name": {"name": "a name"},
    "POST /api/admin/topics": {"name": "topic"},
    "POST /api/topics/{topic}/produce": {"value": "eA=="},
    "POST /api/topics/{topic}/commit": {
        "group": "group",
        "offsets": [{"partition": 0, "offset": 0}],
    },
    "POST /api/topics/{topic}/seek": {"group": "group", "to": "first"},
}


def target(line: Line, vhost: str) -> str:
    path = line.path
    if line.vhost == "-" and line.whom == "administrator":
        vhost = "spare"  # it may go
    to = "y" if "/e/{destination}" in path else "q"
    places = {**PLACES, **SPECIAL.get(path, {}), "vhost": vhost, "destination": to}
    for name, value in places.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    query = []
    if path.startswith(IN_QUERY):
        query.append(f"vhost={vhost}")
    if "{topic}" in line.path:
        query.append("group=group")
    if line.path.startswith(("/000000000000", "/sqs/", "/queue/")) or (
        (line.method, line.path) == ("POST", "/")
    ):
        query.append("Action=ListQueues")
    return path + ("?" + "&".join(query) if query else "")


def body_of(line: Line) -> object:
    if line.path.startswith(("/000000000000", "/sqs/", "/queue/")) or line.path == "/":
        return None
    default = {} if line.method in ("POST", "PUT", "PATCH") else None
    return BODIES.get(f"{line.method} {line.path}", default)


def login_of(tag: str) -> str:
    return basic(USERS[tag], "guest")


def admits(line: Line, tag: str) -> bool:
    if line.whom in ("open", "anyone"):
        return True
    return bool(tag) and (line.whom in ("management", tag) or tag == "administrator")


def may_without_entry(line: Line, tag: str) -> bool:
    """In a vhost that is not theirs."""
    seers = {"sees": ("monitoring", "administrator"), "keeps": ("administrator",), "enters": ()}
    return tag in seers[line.vhost]


@every_line
def test_who_is_nobody_gets_in_nowhere_but_where_it_is_open(house: House, line: Line) -> None:
    for login in (None, "Bearer made-up"):
        refused = house.status(line, login) in REFUSALS
        assert refused == (line.whom != "open"), login


@pytest.mark.parametrize("login", [basic(SPARE, "wrong"), basic("nobody", "guest"), "Basic ="])
def test_a_wrong_password_opens_none_of_the_doors(house: House, login: str) -> None:
    """One route of each: a wrong password takes a tenth of a second to refuse."""
    for path in ("/api/whoami", "/metrics/per-object", "/api/admin/topics", "/queue/{name}"):
        line = next(line for line in LINES if line.path == path)
        assert house.status(line, login) in REFUSALS, path


@every_line
def test_a_tag_lets_do_what_it_is_for(house: House, line: Line) -> None:
    for tag in TAGS:
        answer = house.status(line, login_of(tag))
        if line.path != "/api/login":
            assert (answer not in REFUSALS) == admits(line, tag), (tag, answer)
        assert answer < 500 or answer == 503, (tag, answer)
        if line.method != "GET" and answer < 300:
            house.restore()


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.vhost != "-"], ids=lambda line: " ".join(line[:2])
)
def test_a_vhost_is_for_those_who_may_enter_or_look_after_it(house: House, line: Line) -> None:
    for tag in TAGS:
        expected = admits(line, tag) and may_without_entry(line, tag)
        answer = house.status(line, login_of(tag), "theirs")
        assert (answer not in REFUSALS) == expected, (tag, answer)


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.needs], ids=lambda line: " ".join(line[:2])
)
def test_each_permission_is_needed_and_no_other(house: House, line: Line) -> None:
    login = basic(WORKER, "guest")
    for missing in line.needs:
        house.permit(tuple(need for need in line.needs if need != missing))
        assert house.status(line, login) in REFUSALS, missing
    house.permit(line.needs)
    answer = house.status(line, login)
    assert answer not in REFUSALS
    assert answer < 500, answer
    house.restore()


# SQS, by its operations


def test_every_operation_of_sqs_has_a_line() -> None:
    assert SQS_NEEDS.keys() == OPERATIONS.keys()


HANDLE = base64.urlsafe_b64encode(json.dumps({"taskId": "1", "source": "q"}).encode()).decode()
ARN = "arn:aws:sqs:leveret:000000000000:q"
ENTRY = {"Id": "1", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 0}
SQS_BODY = {
    "Attributes": {"DelaySeconds": "0"},
    "Entries": [ENTRY],
    "MessageBody": "x",
    "ReceiptHandle": "x",
    "SourceArn": ARN,
    "TagKeys": ["a"],
    "Tags": {"a": "b"},
    "TaskHandle": HANDLE,
    "VisibilityTimeout": 0,
}


@pytest.mark.parametrize("operation", SQS_NEEDS)
def test_an_operation_of_sqs_needs_its_permissions(house: House, operation: str) -> None:
    login, path = basic(WORKER, "guest"), f"/queue/q?vhost=mine&Action={operation}"
    needs = tuple(SQS_NEEDS[operation].split())
    for missing in needs:
        house.permit(tuple(need for need in needs if need != missing))
        assert house.send("POST", path, login, SQS_BODY) == 403, missing
    house.permit(needs)
    assert house.send("POST", path, login, SQS_BODY) not in REFUSALS
    theirs = path.replace("mine", "theirs")
    assert house.send("POST", theirs, login, SQS_BODY) == 403
    house.restore()
