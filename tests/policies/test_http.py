"""`/api/policies` and `/api/operator-policies`: statuses and bodies as RabbitMQ 3.10 gives them."""

import json

import pytest
import trio

from broker.config import Config
from broker.http.admin import Admin
from broker.http.messages import HttpError, Request
from broker.http.policies import add_policies
from broker.http.router import Router
from broker.node import Node
from broker.security.passwords import rabbitmq_hash
from broker.user_settings import PermissionConfig, UserConfig
from tests.support.admin import basic

FAILURE_DELAY_S = 7.0
GOOD = {"pattern": "^q", "definition": {"max-length": 1}, "priority": 2, "apply-to": "queues"}
SHOWN = {"vhost": "/", "name": "p", **GOOD}
USERS = {  # name → tag, and whether they may use the vhost "/"
    "admin": ("administrator", True),
    "chief": ("administrator", False),
    "maker": ("policymaker", True),
    "guest-maker": ("policymaker", False),
    "watcher": ("monitoring", True),
    "manager": ("management", True),
    "nobody": ("", True),
}


def user(name, tag, *, enters):
    permissions = (PermissionConfig(vhost="/", configure="", write="", read=""),) if enters else ()
    stored = rabbitmq_hash(b"pw", b"salt")  # which costs nothing to compare
    tags = (tag,) if tag else ()
    return UserConfig(name=name, password_hash=stored, tags=tags, permissions=permissions)


class Door:
    """The routes of a node that is not running, and requests to them."""

    def __init__(self):
        users = tuple(user(name, tag, enters=e) for name, (tag, e) in USERS.items())
        self.node = Node(
            Config(
                users=users,
                vhosts=("/", "staging"),
                loopback_users=("maker",),
                auth_failure_delay_s=FAILURE_DELAY_S,
            )
        )
        self.node.seed()
        self._router = Router()
        add_policies(Admin(self.node, self._router))

    @property
    def vhost(self):
        return self.node.vhosts["/"]

    async def ask(self, method, path, body=None, *, login="admin:pw", peer="127.0.0.1"):
        """Status, body, headers."""
        headers = {}
        if login is not None:
            headers["authorization"] = basic(*login.split(":"))
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        request = Request(method=method, path=path, headers=headers, body=raw, peer=peer)
        try:
            response = await self._router.dispatch(request)
        except HttpError as error:
            response = error.response()
        shown = json.loads(response.body) if response.body else None
        return response.status, shown, response.headers


@pytest.fixture
def door():
    return Door()


PATHS = pytest.mark.parametrize("path", ["/api/policies", "/api/operator-policies"])


@PATHS
async def test_a_policy_is_made_changed_shown_and_deleted(door, path):
    one = f"{path}/%2F/p"
    assert await door.ask("PUT", one, {**GOOD, "priority": 0}) == (201, None, {})
    assert await door.ask("PUT", one, GOOD) == (204, None, {})
    for listed in (path, f"{path}/%2F"):
        assert (await door.ask("GET", listed))[:2] == (200, [SHOWN])
    assert (await door.ask("GET", one))[:2] == (200, SHOWN)
    assert (await door.ask("GET", f"{path}/staging"))[:2] == (200, [])
    assert await door.ask("DELETE", one) == (204, None, {})
    assert (await door.ask("DELETE", one))[0] == 404
    assert (await door.ask("GET", path))[:2] == (200, [])


async def test_the_two_kinds_and_the_vhosts_do_not_mix(door):
    await door.ask("PUT", "/api/policies/%2F/p", GOOD)
    await door.ask("PUT", "/api/policies/staging/s", GOOD)
    await door.ask("PUT", "/api/operator-policies/%2F/o", GOOD)

    async def names(path):
        return [(one["vhost"], one["name"]) for one in (await door.ask("GET", path))[1]]

    assert await names("/api/policies") == [("/", "p"), ("staging", "s")]
    assert await names("/api/policies/staging") == [("staging", "s")]
    assert await names("/api/operator-policies") == [("/", "o")]
    assert (await door.ask("GET", "/api/policies/%2F/o"))[0] == 404


async def test_what_is_not_said_is_shown_as_rabbitmq_shows_it(door):
    body = {"pattern": "", "definition": {"max-length": 1}, "vhost": "other", "name": "other"}
    assert (await door.ask("PUT", "/api/policies/%2F/p", body))[0] == 201
    _, shown, _ = await door.ask("GET", "/api/policies/%2F/p")
    wanted = {"pattern": "", "definition": {"max-length": 1}, "apply-to": "all", "priority": 0}
    assert shown == {"vhost": "/", "name": "p", **wanted}


async def test_names_may_have_any_letters(door):
    assert (await door.ask("PUT", "/api/policies/%2F/a%2Fb%20%C3%BC", GOOD))[0] == 201
    assert (await door.ask("GET", "/api/policies"))[1][0]["name"] == "a/b ü"


@PATHS
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"5", "not a JSON object"),
        (b"\xff", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b"", "pattern is missing"),
        ({"pattern": ""}, "definition is missing"),
        ({**GOOD, "pattern": "("}, "not a regular expression"),
        ({**GOOD, "definition": {}}, "at least one setting"),
        ({**GOOD, "definition": {"nope": 1}}, "nope: not recognised"),
        ({**GOOD, "definition": {"max-length": -1}}, "max-length: expected"),
        ({**GOOD, "apply-to": "nope"}, "apply-to must be one of"),
        ({**GOOD, "apply-to": "nope" * 10_000}, "apply-to must be one of"),
        ({**GOOD, "priority": "a"}, "priority must be"),
        ({**GOOD, "pattern": "\ud800"}, "not a valid text"),
    ],
)
async def test_a_mistake_is_a_400_that_says_what_is_wrong(door, path, body, reason):
    status, shown, _ = await door.ask("PUT", f"{path}/%2F/p", body)
    assert (status, shown["error"]) == (400, "bad_request")
    assert reason in shown["reason"]
    assert len(shown["reason"]) <= 1000
    assert (await door.ask("GET", path))[1] == []


@PATHS
@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", "/nope"),
        ("GET", "/nope/p"),
        ("PUT", "/nope/p"),
        ("DELETE", "/nope/p"),
        ("GET", "/%2F/nope"),
        ("DELETE", "/%2F/nope"),
    ],
)
async def test_what_is_not_there_is_a_404(door, path, method, rest):
    status, shown, _ = await door.ask(method, path + rest, GOOD)
    assert (status, shown["error"]) == (404, "Object Not Found")


@PATHS
async def test_other_methods_are_a_405(door, path):
    assert (await door.ask("POST", f"{path}/%2F/p", GOOD))[0] == 405
    assert (await door.ask("DELETE", path))[0] == 405


async def test_too_many_policies_are_a_400(door, monkeypatch):
    monkeypatch.setattr("broker.policy_store.POLICIES_MAX", 1)
    assert (await door.ask("PUT", "/api/policies/%2F/a", GOOD))[0] == 201
    status, shown, _ = await door.ask("PUT", "/api/policies/%2F/b", GOOD)
    assert (status, shown["error"]) == (400, "bad_request")


async def test_a_node_that_stops_changes_nothing(door):
    door.node.stopping = True
    assert (await door.ask("PUT", "/api/policies/%2F/p", GOOD))[0] == 503
    assert len(door.vhost.policies.sets["policy"]) == 0


# Who may

ALLOWED = {  # RabbitMQ 3.10's answers: all lists, one vhost's list, one policy, change it
    ("policies", "admin"): (200, 200, 200, 204),
    ("policies", "chief"): (200, 200, 200, 204),
    ("policies", "maker"): (200, 200, 200, 204),
    ("policies", "guest-maker"): (200, 401, 401, 401),
    ("policies", "watcher"): (200, 200, 401, 401),
    ("policies", "manager"): (200, 200, 401, 401),
    ("policies", "nobody"): (401, 401, 401, 401),
    ("operator-policies", "admin"): (200, 200, 200, 204),
    ("operator-policies", "chief"): (200, 200, 200, 204),
    ("operator-policies", "maker"): (200, 200, 401, 401),
    ("operator-policies", "guest-maker"): (200, 401, 401, 401),
    ("operator-policies", "watcher"): (200, 200, 401, 401),
    ("operator-policies", "manager"): (200, 200, 401, 401),
    ("operator-policies", "nobody"): (401, 401, 401, 401),
}


@pytest.mark.parametrize(("kind", "name"), ALLOWED)
async def test_tags_and_vhosts_say_who_may_do_what(door, kind, name):
    path = f"/api/{kind}"
    await door.ask("PUT", f"{path}/%2F/p", GOOD)
    login = f"{name}:pw"
    answers = [
        await door.ask("GET", path, login=login),
        await door.ask("GET", f"{path}/%2F", login=login),
        await door.ask("GET", f"{path}/%2F/p", login=login),
        await door.ask("PUT", f"{path}/%2F/p", GOOD, login=login),
    ]
    assert tuple(status for status, _, _ in answers) == ALLOWED[kind, name]
    for status, shown, headers in answers:
        if status == 401:
            assert shown["error"] == "not_authorised"
            assert "WWW-Authenticate" not in headers, "another password would not help"
    deleted, _, _ = await door.ask("DELETE", f"{path}/%2F/p", login=login)
    assert deleted == ALLOWED[kind, name][3]


async def test_lists_leave_out_what_the_user_may_not_see(door):
    await door.ask("PUT", "/api/policies/%2F/p", GOOD)
    assert (await door.ask("GET", "/api/policies", login="guest-maker:pw"))[1] == []
    assert (await door.ask("GET", "/api/policies", login="chief:pw"))[1] == [SHOWN]


@pytest.mark.parametrize(
    "login", ["admin:wrong", "admin:", "stranger:pw", ":", "admin:pw:"], ids=repr
)
async def test_a_wrong_password_costs_time_and_is_a_401(autojump_clock, door, login):
    before = trio.current_time()
    name, _, password = login.partition(":")
    request = {"authorization": basic(name, password)}
    status, shown, headers = await ask_raw(door, request)
    assert (status, shown) == (401, {"error": "not_authorized", "reason": "Login failed"})
    assert headers["WWW-Authenticate"].startswith("Basic realm=")
    assert trio.current_time() - before == FAILURE_DELAY_S


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic ???", "Basic " + "=" * 9, "Digest abc", "Basic /w=="]
)
async def test_credentials_that_are_none_are_a_wrong_password(autojump_clock, door, header):
    status, shown, _ = await ask_raw(door, {"authorization": header})
    assert (status, shown["reason"]) == (401, "Login failed")


async def ask_raw(door, headers):
    with pytest.raises(HttpError) as caught:
        await door._router.dispatch(Request(method="GET", path="/api/policies", headers=headers))
    response = caught.value.response()
    return response.status, json.loads(response.body), response.headers


async def test_without_a_password_the_answer_asks_for_one_at_once(autojump_clock, door):
    before = trio.current_time()
    status, _, headers = await door.ask("GET", "/api/policies", login=None)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Basic realm=")
    assert trio.current_time() == before


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 200),
        ("127.1.2.3", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.1", 401),
        ("::ffff:10.0.0.1", 401),
        ("fe80::1%eth0", 401),
        ("", 401),
    ],
)
async def test_a_loopback_user_may_log_in_from_this_machine_only(
    autojump_clock, door, peer, status
):
    assert (await door.ask("GET", "/api/policies", login="maker:pw", peer=peer))[0] == status
    assert (await door.ask("GET", "/api/policies", login="admin:pw", peer=peer))[0] == 200


# When the answer comes


class SlowJournal:
    """Changes are durable when it is told so."""

    def __init__(self):
        self.changes = []
        self._waiting = []

    def record(self, *change):
        self.changes.append(change)

    def when_durable(self, action):
        self._waiting.append(action)

    def durable(self):
        for action in self._waiting:
            action()


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_the_answer_waits_until_the_change_is_durable(door, nursery, method):
    if method == "DELETE":
        await door.ask("PUT", "/api/policies/%2F/p", GOOD)
    journal = door.vhost.journal = SlowJournal()
    answers = []

    async def change():
        answers.append((await door.ask(method, "/api/policies/%2F/p", GOOD))[0])

    nursery.start_soon(change)
    await trio.testing.wait_all_tasks_blocked()
    assert len(journal.changes) == 1
    assert not answers
    journal.durable()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [201 if method == "PUT" else 204]


async def test_the_answer_waits_until_every_queue_has_the_change(
    autojump_clock, door, nursery, monkeypatch
):
    monkeypatch.setattr("broker.policy_store.SLICE_QUEUES", 5)
    for number in range(50):
        door.vhost.declare_queue(
            f"q{number}",
            durable=False,
            auto_delete=False,
            owner=None,
            arguments={},
            user_of=None,
        )
    nursery.start_soon(door.node.timers.run, door.node.flush)
    assert (await door.ask("PUT", "/api/policies/%2F/p", GOOD))[0] == 201
    assert {queue.options.max_length for queue in door.vhost.queues.values()} == {1}
    nursery.cancel_scope.cancel()
