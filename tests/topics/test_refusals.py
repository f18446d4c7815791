"""Bad input is told in problem+json and changes nothing; permissions are those of AMQP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.topics.conftest import PROBLEM, Answer, Member, Web, encoded, fresh_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.process import BrokerProcess

pytestmark = pytest.mark.leveret_only

VALUE = encoded(b"value")
GROUP = {"group": "g"}
AT = {"partition": 0, "offset": 0}
HUGE = {"a": 2**64}
# Method, path with {t} for a topic of one partition, body, query; status and code.
BAD: list[tuple[str, str, Any, dict[str, Any], int, str]] = [
    ("POST", "admin/topics", b"{", {}, 400, "bad_request"),
    ("POST", "admin/topics", [], {}, 400, "bad_request"),
    ("POST", "admin/topics", {}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": ""}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": 7}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x" * 256}, {}, 400, "bad_request"),
    ("POST", "admin/topics", b'{"name": "\\ud800"}', {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "partitions": 0}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "partitions": 1025}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "partitions": True}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "partitions": "2"}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "replicationFactor": 0}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "retentionMs": -2}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "retentionMs": 10**15}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "x", "partition": 2}, {}, 400, "bad_request"),
    ("POST", "admin/topics", {"name": "amq.x"}, {}, 403, "access_refused"),
    ("POST", "admin/topics", {"name": "__consumer_offsets"}, {}, 403, "access_refused"),
    ("POST", "admin/topics", {"name": "x"}, {"vhost": "none"}, 404, "not_found"),
    ("GET", "admin/topics", None, {"vhost": "none"}, 404, "not_found"),
    ("GET", "admin/topics/none", None, {}, 404, "stream_not_found"),
    ("DELETE", "admin/topics/none", None, {}, 404, "stream_not_found"),
    ("POST", "topics/none/produce", {"value": VALUE}, {}, 404, "stream_not_found"),
    ("POST", "topics/{t}/produce", b"\xff", {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", b"[" * 100_000, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": 1}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": "not base64"}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE, "key": 1}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE, "key": "k" * 65537}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE, "keyEncoding": "hex"}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE, "headers": []}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE, "headers": HUGE}, {}, 400, "bad_request"),
    (
        "POST",
        "topics/{t}/produce",
        {"value": VALUE, "headers": {"a" * 256: 1}},
        {},
        400,
        "bad_request",
    ),
    ("POST", "topics/{t}/produce", {"value": VALUE, "partition": -1}, {}, 400, "bad_request"),
    (
        "POST",
        "topics/{t}/produce",
        {"value": VALUE, "partition": 1},
        {},
        404,
        "partition_not_found",
    ),
    ("POST", "topics/{t}/produce", {"value": VALUE, "extra": 1}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": VALUE}, {"acks": "2"}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"records": []}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"records": {}}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"records": [{"value": VALUE}, 1]}, {}, 400, "bad_request"),
    (
        "POST",
        "topics/{t}/produce",
        {"records": [{"value": VALUE}] * 10_001},
        {},
        400,
        "bad_request",
    ),
    ("POST", "topics/{t}/produce", {"records": [], "value": VALUE}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/produce", {"value": "AAAA" * 2_500_000}, {}, 413, "record_too_large"),
    ("POST", "topics/__consumer_offsets/produce", {"value": VALUE}, {}, 403, "access_refused"),
    ("GET", "topics/none/consume", None, GROUP, 404, "stream_not_found"),
    ("GET", "topics/{t}/consume", None, {}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, {"group": "x" * 256}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"maxMessages": 0}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"maxMessages": 1001}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"maxMessages": "many"}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"timeoutMs": -1}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"timeoutMs": 30_001}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"sessionTimeoutMs": 999}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"from": "middle"}, 400, "bad_request"),
    ("GET", "topics/{t}/consume", None, GROUP | {"session": "x"}, 404, "session_unknown"),
    ("DELETE", "topics/{t}/consume", None, GROUP, 404, "session_unknown"),
    ("POST", "topics/{t}/commit", {"offsets": [AT]}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP | {"offsets": {}}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP | {"offsets": [1]}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP | {"offsets": [{"partition": 0}]}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP | {"offsets": [AT, AT]}, {}, 400, "bad_request"),
    (
        "POST",
        "topics/{t}/commit",
        GROUP | {"offsets": [AT | {"offset": -1}]},
        {},
        400,
        "bad_request",
    ),
    (
        "POST",
        "topics/{t}/commit",
        GROUP | {"offsets": [AT | {"offset": 2**63}]},
        {},
        400,
        "bad_request",
    ),
    (
        "POST",
        "topics/{t}/commit",
        GROUP | {"offsets": [AT | {"partition": 1}]},
        {},
        404,
        "partition_not_found",
    ),
    ("POST", "topics/{t}/commit", GROUP | {"session": 1}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/commit", GROUP | {"session": "0-x"}, {}, 404, "session_unknown"),
    ("POST", "topics/{t}/commit", GROUP | {"offset": []}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/seek", GROUP, {}, 400, "bad_request"),
    ("POST", "topics/{t}/seek", GROUP | {"to": "first", "offsets": [AT]}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/seek", GROUP | {"to": "middle"}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/seek", GROUP | {"to": -1}, {}, 400, "bad_request"),
    ("POST", "topics/{t}/seek", GROUP | {"to": "committed"}, {}, 400, "bad_request"),
    ("GET", "topics/{t}/lag", None, {}, 400, "bad_request"),
    ("GET", "topics/none/lag", None, GROUP, 404, "stream_not_found"),
]


def test_bad_input_is_told_and_changes_nothing(web: Web, topic: str) -> None:
    wrong = []
    for method, path, body, query, status, code in BAD:
        answer = web.call(method, path.replace("{t}", topic), body, **query)
        told = answer.json or {}
        said = (answer.status, told.get("code"), answer.headers.get("Content-Type"))
        if said != (status, code, PROBLEM) or told["status"] != status or not told["detail"]:
            wrong.append((method, path, str(body)[:80], query, answer))
    assert wrong == []
    assert web.ask("GET", f"admin/topics/{topic}")["offsets"][0]["nextOffset"] == 0
    assert web.lag(topic, "g")["partitions"] == [
        {"partition": 0, "committed": None, "next": 0, "lag": 0, "member": None}
    ]
    assert "x" not in {row["name"] for row in web.ask("GET", "admin/topics")}


def test_a_problem_is_as_the_standard_has_it(web: Web) -> None:
    answer = web.call("GET", "admin/topics/none")
    assert answer.json == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no topic 'none'",
        "code": "stream_not_found",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
NAMES = ["value", "key", "keyEncoding", "headers", "partition", "records", "group", "offsets", "to"]
BODIES = st.dictionaries(st.sampled_from(NAMES), JSON | st.just(VALUE) | st.just([AT]), max_size=5)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(["produce", "commit", "seek"]), body=BODIES)
def test_no_body_breaks_anything(web: Web, topic: str, path: str, body: dict[str, Any]) -> None:
    answer = web.call("POST", f"topics/{topic}/{path}", json.dumps(body).encode())
    assert answer.status < 500, answer


def test_who_is_not_logged_in_is_told_so(broker: BrokerProcess) -> None:
    with Web(broker.host, broker.http_port, password="wrong") as web:
        answer = web.call("GET", "admin/topics")
    assert (answer.status, answer.json["code"]) == (401, "login_failed")
    assert answer.headers["Content-Type"] == PROBLEM
    assert "WWW-Authenticate" in answer.headers


# Permissions


class Users:
    """Users without any tag, as programs are."""

    def __init__(self, broker: BrokerProcess, api: Any) -> None:
        self._broker = broker
        self._api = api
        self._open: list[Web] = []
        self._made: list[str] = []

    def make(self, **permissions: str) -> Web:
        """Without a pattern nothing is allowed."""
        name = fresh_name()
        self._made.append(name)
        user = {"password": "secret", "tags": ""}
        assert self._api.call("PUT", "users", name, body=user).status < 300
        body = {"configure": "^$", "write": "^$", "read": "^$", **permissions}
        assert self._api.call("PUT", "permissions", "/", name, body=body).status < 300
        broker = self._broker
        self._open.append(Web(broker.host, broker.http_port, user=name, password="secret"))
        return self._open[-1]

    def close(self) -> None:
        for web in self._open:
            web.close()
        for name in self._made:
            self._api.call("DELETE", "users", name)


@pytest.fixture
def users(broker: BrokerProcess, api: Any) -> Iterator[Users]:
    users = Users(broker, api)
    yield users
    users.close()


class Operation(NamedTuple):
    """What is asked for, and by which permissions, each on {t}, a topic, or {g}, a group."""

    method: str
    path: str
    body: dict[str, Any] | None
    needs: tuple[tuple[str, str], ...]
    query: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


READS = (("read", "{t}"), ("read", "{g}"))
OPERATIONS = {
    "create": Operation("POST", "admin/topics", {"name": "{t}"}, (("configure", "{t}"),)),
    "delete": Operation("DELETE", "admin/topics/{t}", None, (("configure", "{t}"),)),
    "describe": Operation("GET", "admin/topics/{t}", None, (("read", "{t}"),)),
    "produce": Operation("POST", "topics/{t}/produce", {"value": VALUE}, (("write", "{t}"),)),
    "consume": Operation("GET", "topics/{t}/consume", None, READS, {"group": "{g}"}),
    "commit": Operation("POST", "topics/{t}/commit", {"group": "{g}", "offsets": [AT]}, READS),
    "seek": Operation("POST", "topics/{t}/seek", {"group": "{g}", "to": "first"}, READS),
    "lag": Operation("GET", "topics/{t}/lag", None, READS, {"group": "{g}"}),
}


def do(web: Web, operation: Operation, topic: str, group: str) -> Answer:
    def filled(text: str) -> str:
        return text.replace("{t}", topic).replace("{g}", group)

    body = operation.body and json.loads(filled(json.dumps(operation.body)))
    query = {key: filled(value) for key, value in operation.query.items()}
    return web.call(operation.method, filled(operation.path), body, **query)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_needs_its_permissions_and_no_others(
    topic: str, users: Users, name: str
) -> None:
    operation = OPERATIONS[name]
    group = fresh_name()
    names = {"{t}": topic, "{g}": group}
    for lacking in operation.needs:
        others = {"configure": ".*", "write": ".*", "read": ".*"}
        if name == "describe":
            others["configure"] = "^$"  # that would do as well
        others[lacking[0]] = f"^(?!{names[lacking[1]]}$).*"
        answer = do(users.make(**others), operation, topic, group)
        assert (answer.status, answer.json["code"]) == (403, "access_refused"), lacking
        assert answer.headers["Content-Type"] == PROBLEM
    wanted = {action: "" for action, _ in operation.needs}
    for action, _ in operation.needs:
        patterns = [f"^{names[each]}$" for kind, each in operation.needs if kind == action]
        wanted[action] = "|".join(patterns)
    assert do(users.make(**wanted), operation, topic, group).status < 300


def test_who_may_not_enter_the_vhost_may_do_nothing(
    broker: BrokerProcess, api: Any, topic: str
) -> None:
    name = fresh_name()
    assert api.call("PUT", "users", name, body={"password": "secret", "tags": ""}).status < 300
    with Web(broker.host, broker.http_port, user=name, password="secret") as web:
        for operation in OPERATIONS.values():
            assert do(web, operation, topic, "g").status == 403
        assert web.call("GET", "admin/topics").status == 403
    api.call("DELETE", "users", name)


def test_lists_tell_of_what_the_user_may_see(make_topic: Any, users: Users) -> None:
    mine, _others = make_topic(), make_topic()
    web = users.make(read=f"^{mine}$")
    assert [row["name"] for row in web.ask("GET", "admin/topics")] == [mine]


def test_a_session_is_of_no_use_to_another_user(
    web: Web, topic: str, users: Users, group: str
) -> None:
    member = Member(web, topic, group)
    member.poll()
    thief = users.make(read=".*")
    answer = thief.call("GET", f"topics/{topic}/consume", group=group, session=member.session)
    assert (answer.status, answer.json["code"]) == (404, "session_unknown")
