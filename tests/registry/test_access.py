"""Who may do what, as a table: permissions on the subject's name in vhost "/", and tags."""

import pytest

from tests.registry.conftest import Web, field, fresh, text_of

pytestmark = pytest.mark.leveret_only

PASSWORD = "correct horse"
# What is done to a subject, and what else there is. {s} is its name, {i} the id of its schema.
OPERATIONS = {
    "get": ("GET", "subjects/{s}/versions/1"),
    "list versions": ("GET", "subjects/{s}/versions"),
    "referrers": ("GET", "subjects/{s}/versions/1/referencedby"),
    "by id": ("GET", "schemas/ids/{i}"),
    "get level": ("GET", "config/{s}"),
    "look up": ("POST", "subjects/{s}"),
    "check": ("POST", "compatibility/subjects/{s}/versions"),
    "register": ("POST", "subjects/{s}/versions"),
    "set level": ("PUT", "config/{s}"),
    "set mode": ("PUT", "mode/{s}"),
    "forget level": ("DELETE", "config/{s}"),
    "delete version": ("DELETE", "subjects/{s}/versions/1"),
    "delete": ("DELETE", "subjects/{s}"),
    "level of all": ("GET", "config"),
    "types": ("GET", "schemas/types"),
    "set level of all": ("PUT", "config"),
    "set mode of all": ("PUT", "mode"),
}
ANY = {"level of all", "types"}
READ = {"get", "list versions", "referrers", "by id", "get level", "look up", "check"}
WRITE = {"register"}
CONFIGURE = {"set level", "set mode", "forget level", "delete version", "delete"}
POLICY = {"set level of all", "set mode of all"}
# tags, (configure, write, read) on the subject, what is allowed
WHO = {
    "nobody": ((), None, ANY),
    "no names at all": ((), ("", "", ""), ANY),
    "reader": ((), ("", "", "{s}"), ANY | READ),
    "producer": ((), ("", "{s}", ""), ANY | READ | WRITE),
    "owner": ((), ("{s}", "", ""), ANY | CONFIGURE),
    "all of it": ((), ("{s}", "{s}", "{s}"), ANY | READ | WRITE | CONFIGURE),
    "of another subject": ((), ("other", "other", "other"), ANY),
    "management": (("management",), None, ANY | READ),
    "monitoring": (("monitoring",), None, ANY | READ),
    "policymaker": (("policymaker",), None, ANY | READ | POLICY),
    "administrator": (("administrator",), None, ANY | READ | POLICY),
}


@pytest.fixture
def user(web, broker):
    """Make a user with tags and permissions; a client that is logged in as them."""
    names, clients = [], []

    def make(tags, permissions):
        name = fresh("user")
        names.append(name)
        body = {"password": PASSWORD, "tags": list(tags)}
        assert _put(web, "users", name, body)
        if permissions is not None:
            configure, write, read = permissions
            body = {"configure": configure, "write": write, "read": read}
            assert _put(web, "permissions", "/", name, body)
        clients.append(Web(broker.host, broker.http_port, user=name, password=PASSWORD))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
    for name in names:
        _send(web, "DELETE", "users", name)


def _put(web, *path_and_body):
    *path, body = path_and_body
    return _send(web, "PUT", *path, body=body) in (201, 204)


def _send(web, method, *path, body=None):
    """The management API answers without a body."""
    try:
        return web.call(method, "api", *path, body=body).status
    except ValueError:
        return 204


@pytest.mark.parametrize(("tags", "permissions", "allowed"), WHO.values(), ids=WHO.keys())
def test_what_a_user_may_do(web, user, unique, tags, permissions, allowed):
    subject = fresh("access")
    if permissions is not None:
        permissions = tuple(each.replace("{s}", f"^{subject}$") for each in permissions)
    client = user(tags, permissions)
    schema_id = _begin(web, subject, unique)
    found = set()
    for name, (method, path) in OPERATIONS.items():
        new = {**unique, "fields": [field("a"), field("b", default=0)]}
        body = {"schema": text_of(new if name == "register" else unique)}
        if method == "PUT":
            body = {"mode": "READWRITE"} if "mode" in name else {"compatibility": "BACKWARD"}
        parts = path.replace("{s}", subject).replace("{i}", str(schema_id)).split("/")
        answer = client.call(method, *parts, body=None if method in ("GET", "DELETE") else body)
        if answer.status != 200:
            assert (answer.status, answer.code) == (403, 40301), (name, answer)
            continue
        found.add(name)
        if name not in READ | ANY:
            web.call("DELETE", "config")
            web.call("DELETE", "subjects", subject)
            web.call("DELETE", "subjects", subject, permanent="true")
            schema_id = _begin(web, subject, unique)
    assert found == allowed


def _begin(web, subject, schema):
    schema_id = web.registered(subject, schema)
    web.call("PUT", "config", subject, body={"compatibility": "NONE"})
    return schema_id


def test_lists_leave_out_what_is_not_for_the_user(web, user, unique):
    prefix = fresh("seen")
    mine, other = f"{prefix}.mine", f"{prefix}.other"
    one = web.registered(mine, unique)
    assert web.registered(other, unique) == one
    private = web.registered(other, {**unique, "doc": "private"})
    reader = user((), ("", "", f"^{prefix}[.]mine$"))
    assert reader.call("GET", "subjects", subjectPrefix=prefix).json == [mine]
    rows = reader.call("GET", "schemas", subjectPrefix=prefix).json
    assert [row["subject"] for row in rows] == [mine]
    assert reader.call("GET", "schemas", "ids", str(one), "subjects").json == [mine]
    assert reader.call("GET", "schemas", "ids", str(private)).code == 40301


def test_a_reference_to_what_may_not_be_read_is_refused(web, user, unique):
    secret, mine = fresh("secret"), fresh("mine")
    web.registered(secret, unique)
    writer = user((), ("", f"^{mine}$", ""))
    refers = [{"name": unique["name"], "subject": secret, "version": 1}]
    answer = writer.register(mine, f'"{unique["name"]}"', references=refers)
    assert answer.code == 40301


def test_without_a_login_nothing_is_told(web, broker):
    del web.headers["Authorization"]
    answer = web.call("GET", "subjects")
    assert (answer.status, answer.code) == (401, 401)
    wrong = Web(broker.host, broker.http_port, password="wrong")
    assert wrong.call("GET", "schemas", "ids", "1").code == 401
    wrong.close()


def test_pages_of_other_sites_change_nothing(web, subject, unique):
    web.headers["Sec-Fetch-Site"] = "cross-site"
    assert web.register(subject, unique).status == 403
