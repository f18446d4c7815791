"""schemathesis against a live broker: what the API's description says is what is answered.

Each operation gets requests that fit its description and requests that do not, the same in every
run, to a broker that nobody else needs. Names are half the time those of things that are there, or
404 would be all that is seen. No operation is left out; what one has deleted is made anew for the
next. LEVERET_TEST_FUZZ is how many requests each gets.

Looked at in each answer: no 5xx but what a health check says of what is unhealthy; and the status,
the media type and the body are such as the description has. Not looked at: whether all is refused
that does not fit the description (RabbitMQ's API ignores fields and parameters that it does not
know, and so does this one), and whether all is taken that does (which queues there are, no
description can say). Who needs to log in, and as whom: tests/security/test_http_matrix.py.
"""

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from broker.management.api.table import TABLE
from tests.management.test_permissions import HASHED
from tests.support.admin import Api, basic
from tests.support.process import BrokerProcess

EXAMPLES = int(os.environ.get("LEVERET_TEST_FUZZ", "4"))  # for each operation
TIMEOUT_S = 60
CALLER, PASSWORD = "the caller of all this", "a password"
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
# A long poll would wait for as long as it is told, and nothing comes.
WAITS = {"timeoutMs": 20, "wait_ms": 20}
DEAD_LETTERING = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
# What paths may name: of each parameter, things that are there.
KNOWN = {
    "vhost": ["/", "/", "/", "other"],
    "user": ["somebody"],
    "name": ["q", "q", "dead", "stream", "x", "amq.topic", "p", "max-connections", "parameter"],
    "source": ["x", "amq.topic", "amq.default"],
    "destination": ["q", "dead", "x"],
    "key": ["k", "~", "q"],
    "exchange": ["x"],
    "topic": ["stream"],
    "group": ["group"],
    "id": ["0", "1"],
    "component": ["federation"],
    "port": ["1", "70000"],
    "protocol": ["amqp", "http"],
    "within": ["1"],
    "unit": ["weeks"],
    "node": ["leveret"],
}


@pytest.fixture(scope="module")
def schema(node: BrokerProcess, caller: str) -> Any:
    url = node.http_url("/api/openapi.json")
    document = requests.get(url, headers={"Authorization": caller}, timeout=TIMEOUT_S).json()
    return schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
def caller(node: BrokerProcess) -> str:
    """An administrator whom no example names, as the header that lets them in."""
    api = Api(node.host, node.http_port)
    user = {"password": PASSWORD, "tags": "administrator"}
    assert api.call("PUT", "users", CALLER, body=user).status == 201
    api.close()
    return basic(CALLER, PASSWORD)


@pytest.fixture(scope="module")
def session(caller: str) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.headers["Authorization"] = caller
        session.trust_env = False
        yield session


RIGHTS = dict.fromkeys(("configure", "write", "read"), ".*")
IN_VHOST = {"vhost": "/", "durable": True, "auto_delete": False}
THINGS = {
    "users": [{"name": "somebody", **HASHED, "tags": "management"}],
    "vhosts": [{"name": "/"}, {"name": "other"}],
    "permissions": [
        {"user": user, "vhost": vhost, **RIGHTS}
        for user in (CALLER, "somebody")
        for vhost in ("/", "other")
    ],
    "queues": [
        {"name": "q", **IN_VHOST, "arguments": DEAD_LETTERING},
        {"name": "dead", **IN_VHOST, "arguments": {}},
        {"name": "stream", **IN_VHOST, "arguments": {"x-queue-type": "stream"}},
    ],
    "exchanges": [{"name": "x", **IN_VHOST, "internal": False, "type": "topic", "arguments": {}}],
    "policies": [
        {"name": "p", "vhost": "/", "pattern": "none", "definition": {"max-length": 5}},
    ],
    "global_parameters": [{"name": "parameter", "value": 1}],
}
LIMITS = ("user-limits somebody max-connections", "vhost-limits / max-queues")


@pytest.fixture
def things(node: BrokerProcess, schema: Any) -> None:
    """What paths name, where it is missing; limits would keep it from being made."""
    api = Api(node.host, node.http_port, user=CALLER, password=PASSWORD)
    for limit in LIMITS:
        assert api.call("DELETE", *limit.split()).status in (204, 404), limit
    made = api.call("POST", "definitions", body=THINGS)
    assert made.status == 204, made
    api.close()


def with_known_names(case: Any, choose: st.DataObject) -> None:
    for name, value in case.path_parameters.items():
        if value in ("", None) or choose.draw(st.booleans()):  # without a name, it is another path
            known = choose.draw(st.sampled_from(KNOWN[name]))
            case.path_parameters[name] = quote(known, safe="")
    for name, value in WAITS.items():
        if name in (case.query or {}):
            case.query[name] = value


@pytest.mark.parametrize(("method", "path"), sorted(TABLE), ids=str)
@pytest.mark.usefixtures("things")
def test_answers_are_as_described(
    node: BrokerProcess,
    schema: Any,
    session: requests.Session,
    method: str,
    path: str,
) -> None:
    operation = schema[path][method]
    requests_of = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(requests_of), choose=st.data())
    def check(case: Any, choose: st.DataObject) -> None:
        with_known_names(case, choose)
        answer = case.call(base_url=node.http_url(""), session=session, timeout=TIMEOUT_S)
        unhealthy = answer.status_code == 503 and TABLE[method, path].unhealthy is not None
        assert answer.status_code < 500 or unhealthy, (case.as_curl_command(), answer.text)
        case.validate_response(answer, checks=CHECKS)

    check()
