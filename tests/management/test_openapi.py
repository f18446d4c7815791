"""The API's description is true: it names what is there, and nothing that it names breaks."""

import http.client
import json
import string
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.admin import Api, basic
from tests.support.process import BrokerProcess

# What would leave nothing to ask for.
LEFT_OUT = {("DELETE", "/api/vhosts/{vhost}")}
# Whom no example names.
CALLER, PASSWORD = "the caller of all this", "a password"


@pytest.fixture(scope="module")
def document(node: BrokerProcess):
    api = Api(node.host, node.http_port)
    answer = api.call("GET", "openapi.json")
    api.close()
    assert answer.status == 200
    return answer.json


def test_every_operation_is_described_once(document) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names)) > 80
    for path in ("/api/queues", "/api/overview", "/api/openapi.json", "/metrics", "/health"):
        assert "get" in document["paths"][path]
    assert not [path for path in document["paths"] if "internal" in path]


def test_every_path_that_is_described_is_there(document, web: Api) -> None:
    for path in document["paths"]:
        if not path.startswith("/api/"):
            continue
        parts = ["/" if part == "{vhost}" else part for part in path.split("/")[2:]]
        answer = web.call("OPTIONS", *parts)
        assert answer.status == 405, path


@pytest.fixture(scope="module")
def caller(node: BrokerProcess) -> str:
    """An administrator, as the header that lets them in."""
    api = Api(node.host, node.http_port)
    user = {"password": PASSWORD, "tags": "administrator"}
    assert api.call("PUT", "users", CALLER, body=user).status == 201
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    assert api.call("PUT", "permissions", "/", CALLER, body=rights).status == 201
    api.close()
    return basic(CALLER, PASSWORD)


WORDS = st.text(string.ascii_letters + string.digits + " /%~.*#\u00e4\0\"'{}[]", max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "durable",
        "auto_delete",
        "internal",
        "arguments",
        "type",
        "routing_key",
        "properties",
        "payload",
        "payload_encoding",
        "count",
        "ackmode",
        "encoding",
        "truncate",
        "action",
        "value",
        "name",
        "pattern",
        "definition",
        "priority",
        "apply-to",
        "queues",
        "exchanges",
        "bindings",
        "policies",
        "parameters",
        "users",
        "vhosts",
        "permissions",
        "ids",
        "all",
        "due_ms",
        "delay_ms",
        "to",
        "stream",
        "offset",
        "partitions",
    ]
)
BODIES = st.dictionaries(FIELDS | WORDS, VALUES, max_size=6)
NAMES = st.sampled_from(["/", "q", "amq.topic", "x", "guest", "1", ""]) | WORDS


@given(data=st.data())
@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_request_breaks_the_broker(node: BrokerProcess, document, caller: str, data) -> None:
    """Whatever is asked, the answer says what is wrong with it; only alarms and such are 503."""
    operations = [
        (method.upper(), path)
        for path, item in sorted(document["paths"].items())
        for method in sorted(item)
        if (method.upper(), path) not in LEFT_OUT
    ]
    method, path = data.draw(st.sampled_from(operations))
    described = document["paths"][path][method.lower()]
    for parameter in described["parameters"]:
        if parameter["in"] == "path":
            value = quote(data.draw(NAMES), safe="")
            path = path.replace("{" + parameter["name"] + "}", value)
    query = [one["name"] for one in described["parameters"] if one["in"] == "query"]
    if query:
        chosen = data.draw(
            st.dictionaries(st.sampled_from(query), WORDS | st.just("1"), max_size=4)
        )
        path += "?" + urlencode(chosen)
    body = json.dumps(data.draw(BODIES | VALUES)) if method in ("PUT", "POST", "PATCH") else None
    connection = http.client.HTTPConnection(node.host, node.http_port, timeout=60)
    connection.request(method, path, body, {"Authorization": caller})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status < 500 or answer.status == 503, (method, path, body, text)
    if answer.status >= 400 and text:
        assert "reason" in json.loads(text)
