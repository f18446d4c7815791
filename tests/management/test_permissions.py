"""What callers may do is what AMQP would let them: with each permission, and without it."""

import pytest

from tests.support.admin import Api
from tests.support.process import BrokerProcess

PUBLISH = {"properties": {}, "routing_key": "k", "payload": "", "payload_encoding": "string"}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}

# Of the password "guest", as RabbitMQ hashes it: quickly, which is for tests.
HASHED = {
    "password_hash": "t1lBMO+ggdqscnAVJfXyR8y1u9fDcyutQlCaWaWxbOoAGMmC",
    "hashing_algorithm": "rabbit_password_hashing_sha256",
}
# Method, path, body, status with the permission, and the permissions on what, that it needs.
OPERATIONS = [
    ("PUT", "queues / fresh", {}, 201, {"configure": "fresh"}),
    ("DELETE", "queues / fresh", None, 204, {"configure": "fresh"}),
    ("PATCH", "queues / q", {"arguments": {"x-max-length": 5}}, 200, {"configure": "q"}),
    ("DELETE", "queues / q contents", None, 204, {"read": "q"}),
    ("POST", "queues / q get", GET, 200, {"read": "q"}),
    ("GET", "queues / q messages", None, 200, {"read": "q"}),
    ("GET", "queues / q messages 0", None, 404, {"read": "q"}),
    ("DELETE", "queues / q messages 0", None, 404, {"read": "q"}),
    ("POST", "queues / q messages 0 move", {"to": "p"}, 404, {"read": "q", "write": "p"}),
    ("PUT", "exchanges / new", {"type": "topic"}, 201, {"configure": "new"}),
    ("DELETE", "exchanges / new", None, 204, {"configure": "new"}),
    ("POST", "exchanges / x publish", PUBLISH, 200, {"write": "x"}),
    ("POST", "bindings / e x q q", {"routing_key": "k"}, 201, {"write": "q", "read": "x"}),
    ("DELETE", "bindings / e x q q k", None, 204, {"write": "q", "read": "x"}),
]


@pytest.fixture(scope="module")
def things(node: BrokerProcess) -> None:
    api = Api(node.host, node.http_port)
    for name in ("q", "p"):
        assert api.call("PUT", "queues", "/", name, body={}).status == 201
    assert api.call("PUT", "exchanges", "/", "x", body={"type": "topic"}).status == 201
    user = {**HASHED, "tags": "management"}
    assert api.call("PUT", "users", "worker", body=user).status == 201
    api.close()


def permit(web: Api, needed: dict[str, str]) -> None:
    rights = dict.fromkeys(("configure", "write", "read"), "")
    rights |= {action: f"^{name}$" for action, name in needed.items()}
    assert web.call("PUT", "permissions", "/", "worker", body=rights).status in (201, 204)


@pytest.mark.usefixtures("things")
def test_each_operation_needs_its_permissions_and_no_other(web: Api, node: BrokerProcess) -> None:
    worker = Api(node.host, node.http_port, user="worker", password="guest")
    for method, path, body, status, needed in OPERATIONS:
        for missing in needed:
            permit(web, {action: name for action, name in needed.items() if action != missing})
            refused = worker.call(method, *path.split(), body=body)
            said = (refused.status, refused.json["error"])
            assert said == (401, "not_authorised"), (method, path, missing)
        permit(web, needed)
        answer = worker.call(method, *path.split(), body=body)
        assert answer.status == status, (method, path, answer)
    worker.close()


@pytest.mark.usefixtures("things")
@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("nodes", "monitoring"),
        ("definitions", "administrator"),
        ("definitions /", "policymaker"),
        ("global-parameters", "policymaker"),
        ("feature-flags", "administrator"),
        ("queues", "management"),
        ("overview", "management"),
    ],
)
def test_what_a_tag_lets_see(web: Api, node: BrokerProcess, path: str, tag: str) -> None:
    permit(web, {})
    for name in ("management", "policymaker", "monitoring", "administrator"):
        web.call("PUT", "users", "worker", body={**HASHED, "tags": name})
        worker = Api(node.host, node.http_port, user="worker", password="guest")
        seen = worker.call("GET", *path.split()).status == 200
        worker.close()
        assert seen == (name == tag or name == "administrator" or tag == "management"), name
