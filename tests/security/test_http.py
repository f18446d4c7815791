"""Users, vhosts, permissions and limits over HTTP, in RabbitMQ's shapes; who may call what."""

import json

import pytest

from broker.security.passwords import SCRYPT, SHA256, SHA512, rabbitmq_hash
from tests.security.conftest import PASSWORD
from tests.support.admin import Api

pytestmark = pytest.mark.leveret_only

RABBITMQ_HASH = rabbitmq_hash(b"imported", b"salt").text


@pytest.fixture
def name(house):
    """Of a user or vhost that is gone after the test."""
    name = house.fresh("n")
    yield name
    for kind in ("users", "vhosts"):
        house.api.call("DELETE", kind, name)


def call(house, *arguments, **options):
    answer = house.api.call(*arguments, **options)
    return answer.status, answer.json


def log_in(house, user, password=PASSWORD):
    api = house.api
    return Api(api._connection.host, api._connection.port, user=user, password=password)


# Users


def test_a_user_is_made_shown_changed_and_deleted(house, name):
    body = {"password": "pw", "tags": "management, x"}
    assert call(house, "PUT", "users", name, body=body) == (201, None)
    status, shown = call(house, "GET", "users", name)
    assert status == 200
    assert shown.pop("password_hash")
    tags = ["management", "x"]
    expected = {"name": name, "hashing_algorithm": SCRYPT, "tags": tags, "limits": {}}
    assert shown == expected
    assert call(house, "PUT", "users", name, body={"password": "pw", "tags": []})[0] == 204
    assert call(house, "GET", "users", name)[1]["tags"] == []
    assert name in [user["name"] for user in call(house, "GET", "users")[1]]
    assert call(house, "DELETE", "users", name) == (204, None)
    for method in ("GET", "DELETE"):
        status, error = call(house, method, "users", name)
        assert (status, error["error"]) == (404, "Object Not Found")


@pytest.mark.parametrize("algorithm", [None, SHA256])
def test_a_hash_that_rabbitmq_exported_is_taken_and_the_password_works(house, name, algorithm):
    body = {"password_hash": RABBITMQ_HASH, "tags": "management"}
    if algorithm is not None:
        body["hashing_algorithm"] = algorithm
    assert call(house, "PUT", "users", name, body=body)[0] == 201
    shown = call(house, "GET", "users", name)[1]
    assert (shown["password_hash"], shown["hashing_algorithm"]) == (RABBITMQ_HASH, SHA256)
    assert log_in(house, name, "imported").call("GET", "whoami").json["name"] == name
    assert log_in(house, name, "guessed").call("GET", "whoami").status == 401


@pytest.mark.parametrize(
    "body",
    [
        {"password": "x"},
        {"password": "x", "tags": 5},
        {"password": "x", "tags": [5]},
        {"password": 5, "tags": ""},
        {"password": "\ud800", "tags": ""},
        {"password": "x", "password_hash": RABBITMQ_HASH, "tags": ""},
        {"password_hash": "zzz", "tags": ""},
        {"password_hash": 5, "tags": ""},
        {"password_hash": RABBITMQ_HASH, "hashing_algorithm": SHA512, "tags": ""},
        {"password_hash": RABBITMQ_HASH, "hashing_algorithm": "md5", "tags": ""},
        {"tags": ["\ud800"]},
        [],
        "text",
        b"{",
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body)[:40],
)
def test_what_makes_no_user_is_a_400_and_makes_none(house, name, body):
    status, error = call(house, "PUT", "users", name, body=body)
    assert (status, error["error"]) == (400, "bad_request")
    assert PASSWORD not in json.dumps(error)
    assert call(house, "GET", "users", name)[0] == 404


@pytest.mark.parametrize("body", [{"tags": ""}, {"password": "", "tags": ""}])
def test_a_user_without_a_password_cannot_log_in_with_one(house, name, body):
    assert call(house, "PUT", "users", name, body={**body, "tags": "management"})[0] == 201
    assert call(house, "GET", "users", name)[1]["password_hash"] == ""
    assert log_in(house, name, "").call("GET", "whoami").status == 401


def test_users_are_deleted_together_or_not_at_all(house):
    names = [house.add_user() for _ in range(3)]
    missing = {"users": [names[0], "nobody"]}
    assert call(house, "POST", "users", "bulk-delete", body=missing)[0] == 400
    assert call(house, "GET", "users", names[0])[0] == 200
    for wrong in ({"users": "x"}, {"users": [5]}, {}):
        assert call(house, "POST", "users", "bulk-delete", body=wrong)[0] == 400
    assert call(house, "POST", "users", "bulk-delete", body={"users": names}) == (204, None)
    assert not set(names) & {user["name"] for user in call(house, "GET", "users")[1]}


def test_users_without_permissions_are_listed(house):
    user = house.add_user()

    def listed():
        found = call(house, "GET", "users", "without-permissions")[1]
        return user in [one["name"] for one in found]

    assert listed()
    house.permit(user, "", "", "")
    assert not listed()


# Permissions


def test_a_permission_is_set_shown_and_cleared(house):
    user = house.add_user()
    where = ("permissions", house.vhost, user)
    body = {"configure": ".*", "write": "", "read": "^a"}
    row = {"user": user, "vhost": house.vhost, **body}
    assert call(house, "PUT", *where, body=body) == (201, None)
    assert call(house, "PUT", *where, body=body) == (204, None)
    assert call(house, "GET", *where) == (200, row)
    assert row in call(house, "GET", "permissions")[1]
    assert row in call(house, "GET", "vhosts", house.vhost, "permissions")[1]
    assert call(house, "GET", "users", user, "permissions") == (200, [row])
    assert call(house, "DELETE", *where) == (204, None)
    assert call(house, "DELETE", *where)[0] == 404
    assert call(house, "GET", *where)[0] == 404
    assert call(house, "GET", "users", user, "permissions") == (200, [])


def test_topic_permissions_are_set_shown_and_cleared(house):
    user = house.add_user()
    where = ("topic-permissions", house.vhost, user)
    for status, exchange in ((201, "amq.topic"), (204, "x")):
        body = {"exchange": exchange, "write": "^a", "read": ".*"}
        assert call(house, "PUT", *where, body=body) == (status, None)
    rows = [
        {"user": user, "vhost": house.vhost, "exchange": exchange, "write": "^a", "read": ".*"}
        for exchange in ("amq.topic", "x")
    ]
    assert call(house, "GET", *where) == (200, rows)
    assert call(house, "GET", "users", user, "topic-permissions") == (200, rows)
    for all_rows in (
        call(house, "GET", "topic-permissions")[1],
        call(house, "GET", "vhosts", house.vhost, "topic-permissions")[1],
    ):
        assert all(row in all_rows for row in rows)
    assert call(house, "DELETE", *where, "x") == (204, None)
    assert call(house, "GET", *where) == (200, rows[:1])
    assert call(house, "DELETE", *where) == (204, None)
    assert call(house, "DELETE", *where)[0] == 404


@pytest.mark.parametrize("kind", ["permissions", "topic-permissions"])
@pytest.mark.parametrize(
    "wrong", [{"read": None}, {"read": 5}, {"write": "("}, {"write": "a" * 2000}], ids=str
)
def test_what_is_no_permission_is_a_400(house, kind, wrong):
    user = house.add_user()
    good = {"configure": "", "exchange": "x", "write": "", "read": ""}
    body = {key: text for key, text in {**good, **wrong}.items() if text is not None}
    status, error = call(house, "PUT", kind, house.vhost, user, body=body)
    assert (status, error["error"]) == (400, "bad_request")
    for vhost, who in ((house.vhost, "nobody"), ("nowhere", user)):
        assert call(house, "PUT", kind, vhost, who, body=good)[0] == 400


# Virtual hosts


def test_a_vhost_is_made_shown_changed_and_deleted(house, name):
    assert call(house, "PUT", "vhosts", name) == (201, None)
    body = {"description": "for tests", "tags": "a,b"}
    assert call(house, "PUT", "vhosts", name, body=body) == (204, None)
    status, shown = call(house, "GET", "vhosts", name)
    about = {"description": "for tests", "tags": ["a", "b"]}
    assert status == 200
    assert shown["metadata"] == about
    assert {key: shown[key] for key in ("name", "tracing", *about)} == {
        "name": name,
        "tracing": False,
        **about,
    }
    assert list(shown["cluster_state"].values()) == ["running"]
    assert shown in call(house, "GET", "vhosts")[1]
    assert call(house, "PUT", "vhosts", name, body={"tags": []}) == (204, None)
    assert call(house, "GET", "vhosts", name)[1]["description"] == "for tests", "is kept"
    row = {"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}
    assert call(house, "GET", "vhosts", name, "permissions") == (200, [row])
    assert call(house, "DELETE", "vhosts", name) == (204, None)
    for method in ("GET", "DELETE"):
        assert call(house, method, "vhosts", name)[0] == 404
    assert call(house, "GET", "permissions", name, "guest")[0] == 404


@pytest.mark.parametrize(
    "body", [{"description": 5}, {"description": "x" * 5000}, {"tags": 5}, {"tags": [1]}], ids=str
)
def test_what_makes_no_vhost_is_a_400(house, name, body):
    assert call(house, "PUT", "vhosts", name, body=body)[0] == 400
    assert call(house, "GET", "vhosts", name)[0] == 404
    assert call(house, "PUT", "vhosts", "x" * 256)[0] == 400


# Limits


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("user", "max-connections", "max-channels"),
        ("vhost", "max-connections", "max-queues"),
    ],
)
def test_limits_are_set_shown_and_removed(house, name, kind, first, second):
    body = {"password": "pw", "tags": ""} if kind == "user" else {}
    assert call(house, "PUT", f"{kind}s", name, body=body)[0] == 201
    where = (f"{kind}-limits", name)
    assert call(house, "GET", *where) == (200, [])
    assert call(house, "PUT", *where, first, body={"value": 5}) == (204, None)
    assert call(house, "PUT", *where, second, body={"value": -1}) == (204, None)
    row = {kind: name, "value": {first: 5, second: -1}}
    assert call(house, "GET", *where) == (200, [row])
    assert row in call(house, "GET", f"{kind}-limits")[1]
    for limit in (first, second, first):
        assert call(house, "DELETE", *where, limit) == (204, None)
    assert call(house, "GET", *where) == (200, [])
    for wrong in ("x", None, 2**31, True, 1.5):
        assert call(house, "PUT", *where, first, body={"value": wrong})[0] == 400
    assert call(house, "PUT", *where, "max-foo", body={"value": 1})[0] == 400
    assert call(house, "PUT", f"{kind}-limits", "nowhere", first, body={"value": 1})[0] == 404
    assert call(house, "GET", f"{kind}-limits", "nowhere")[0] == 404


# Who may call what

ADMIN_ONLY = [
    ("GET", "users"),
    ("GET", "users/without-permissions"),
    ("POST", "users/bulk-delete"),
    ("GET", "users/guest"),
    ("PUT", "users/guest"),
    ("DELETE", "users/guest"),
    ("GET", "users/guest/permissions"),
    ("GET", "users/guest/topic-permissions"),
    ("GET", "user-limits"),
    ("GET", "user-limits/guest"),
    ("PUT", "user-limits/guest/max-connections"),
    ("DELETE", "user-limits/guest/max-connections"),
    ("PUT", "vhosts/mine"),
    ("DELETE", "vhosts/mine"),
    ("GET", "vhosts/mine/permissions"),
    ("GET", "vhosts/mine/topic-permissions"),
    ("PUT", "vhost-limits/mine/max-queues"),
    ("DELETE", "vhost-limits/mine/max-queues"),
    ("GET", "permissions"),
    ("GET", "permissions/mine/guest"),
    ("PUT", "permissions/mine/guest"),
    ("DELETE", "permissions/mine/guest"),
    ("GET", "topic-permissions"),
    ("GET", "topic-permissions/mine/guest"),
    ("PUT", "topic-permissions/mine/guest"),
    ("DELETE", "topic-permissions/mine/guest"),
]
FOR_ALL = ["whoami", "vhosts", "vhosts/mine", "vhost-limits", "vhost-limits/mine"]
TAGS = ["management", "policymaker", "monitoring"]


@pytest.fixture(scope="module")
def callers(house):
    """A client for a user of each tag, and of none, who may use the vhost."""
    users = {tag: house.add_user(*([tag] if tag else [])) for tag in (*TAGS, "")}
    for user in users.values():
        house.permit(user, ".*", ".*", ".*")
    clients = {tag: log_in(house, user) for tag, user in users.items()}
    yield clients
    for client in clients.values():
        client.close()


def path(house, text):
    return [house.vhost if part == "mine" else part for part in text.split("/")]


@pytest.mark.parametrize(
    ("method", "text"), ADMIN_ONLY, ids=[" ".join(each) for each in ADMIN_ONLY]
)
@pytest.mark.parametrize("tag", TAGS)
def test_only_administrators_look_after_users_and_vhosts(house, callers, method, text, tag):
    answer = callers[tag].call(method, *path(house, text), body={})
    assert (answer.status, answer.json["reason"]) == (401, "Not administrator user")


@pytest.mark.parametrize("text", FOR_ALL)
def test_what_is_for_every_manager_is_not_for_users_without_a_tag(house, callers, text):
    for tag in TAGS:
        assert callers[tag].call("GET", *path(house, text)).status == 200
    answer = callers[""].call("GET", *path(house, text))
    assert (answer.status, answer.json["reason"]) == (401, "Not management user")


def test_a_manager_sees_vhosts_that_they_may_enter_and_a_monitor_all(house, callers):
    for tag, sees in (("management", False), ("policymaker", False), ("monitoring", True)):
        names = [vhost["name"] for vhost in callers[tag].call("GET", "vhosts").json]
        assert house.vhost in names
        assert ("/" in names) is sees
        status = 200 if sees else 401
        assert callers[tag].call("GET", "vhosts", "/").status == status
        assert callers[tag].call("GET", "vhost-limits", "/").status == status


# Logging in


def test_a_token_stands_for_the_password_until_it_is_given_back(house):
    user = house.add_user("management")
    api = log_in(house, user)
    api.headers = {}
    answer = api.call("POST", "login", body={"username": user, "password": PASSWORD})
    assert answer.status == 200, answer
    assert answer.json["token_type"] == "Bearer"
    assert answer.json["expires_in"] == 3600
    assert answer.json["user"] == {"name": user, "tags": ["management"]}
    api.headers = {"Authorization": f"Bearer {answer.json['token']}"}
    assert api.call("GET", "whoami").json == {"name": user, "tags": ["management"]}
    renewed = api.call("POST", "login").json["token"]
    assert api.call("DELETE", "login").status == 204
    answer = api.call("GET", "whoami")
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer", "at which no browser asks"
    api.headers = {"Authorization": f"bearer {renewed}"}
    assert api.call("GET", "whoami").status == 200
    assert house.api.call("DELETE", "users", user).status == 204
    assert api.call("GET", "whoami").status == 401


def test_a_form_is_taken_for_a_login_as_in_rabbitmq(house):
    api = log_in(house, "")
    api.headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = api.call("POST", "login", body=b"username=guest&password=guest")
    assert (answer.status, answer.json["user"]["name"]) == (200, "guest")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"username": "guest", "password": "wrong"}, 401),
        ({"username": "stranger", "password": "guest"}, 401),
        ({"username": "guest"}, 400),
        ({"username": "guest", "password": 5}, 400),
        ({"username": "guest", "password": "\ud800"}, 400),
        ([], 400),
        (b"{", 400),
        (b"[" * 10_000, 400),
        (b"x" * 20_000, 413),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_login_that_fails_asks_no_browser_for_a_password(house, body, status):
    api = log_in(house, "")
    api.headers = {}
    answer = api.call("POST", "login", body=body)
    assert answer.status == status
    assert "Basic" not in answer.headers.get("WWW-Authenticate", "")


def test_a_user_without_a_tag_gets_no_token(house):
    user = house.add_user()
    api = log_in(house, "")
    api.headers = {}
    answer = api.call("POST", "login", body={"username": user, "password": PASSWORD})
    assert (answer.status, answer.json["reason"]) == (401, "Not management user")


def test_a_token_has_to_be_in_the_request_that_gives_it_back(house):
    assert house.api.call("DELETE", "login").status == 400


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_another_site_has_a_browser_send_is_refused(house, name, site):
    api = log_in(house, "guest", "guest")
    api.headers["Sec-Fetch-Site"] = site
    assert api.call("PUT", "users", name, body={"password": "x", "tags": ""}).status == 403
    assert call(house, "GET", "users", name)[0] == 404
    body = {"username": "guest", "password": "guest"}
    assert api.call("POST", "login", body=body).status == 403
    assert api.call("GET", "whoami").status == 200
    for own in ("same-origin", "none"):
        api.headers["Sec-Fetch-Site"] = own
        assert api.call("POST", "login", body=body).status == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "rebind.evil.example:15672"}]
)
def test_a_remembered_password_is_of_no_use_to_another_site(house, name, headers):
    api = log_in(house, "guest", "guest")
    api.headers |= headers
    assert api.call("PUT", "users", name, body={"password": "x", "tags": ""}).status == 403
    body = {"username": "guest", "password": "guest"}
    assert api.call("POST", "login", body=body).status == 403
    assert call(house, "GET", "users", name)[0] == 404


def test_answers_tell_browsers_what_not_to_do_with_them(house):
    for answer in (house.api.call("GET", "whoami"), house.api.call("GET", "nothing")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
