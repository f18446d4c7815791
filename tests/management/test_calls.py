"""Statuses and errors of calls, as RabbitMQ 3.10.8 was recorded with them: one after the other."""

from urllib.parse import unquote

import pika
import pytest

from tests.management.conftest import Stage
from tests.support.admin import Api

NOT_FOUND = "Object Not Found"
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
PUBLISH = {"properties": {}, "routing_key": "k", "payload": "hi", "payload_encoding": "string"}
QUEUE = "queues / q"
EXCHANGE = "exchanges / x"
BINDINGS = "bindings / e x q q"

# Method, path (its parts divided by blanks), query, body, status, and error or what is in the body.
TABLE = [
    ("PUT", QUEUE, "", {"durable": True, "auto_delete": False, "arguments": {}}, 201, None),
    ("PUT", QUEUE, "", {"durable": True}, 204, None),
    ("PUT", QUEUE, "", {"durable": "true"}, 204, None),
    ("PUT", QUEUE, "", {"durable": False}, 400, "bad_request"),
    ("PUT", QUEUE, "", {"durable": "x"}, 400, "bad_request"),
    ("PUT", QUEUE, "", b"[]", 400, "bad_request"),
    ("PUT", QUEUE, "", b"no json", 400, "bad_request"),
    ("PUT", "queues / p", "", b"", 201, None),
    ("PUT", "queues / bad", "", {"arguments": {"x-message-ttl": "x"}}, 400, "bad_request"),
    ("PUT", "queues / amq.mine", "", {}, 401, "not_authorised"),
    ("PUT", f"queues / {'n' * 256}", "", {}, 400, "bad_request"),
    ("PUT", "queues nowhere q", "", {}, 404, NOT_FOUND),
    ("GET", "queues / nothing", "", None, 404, NOT_FOUND),
    ("GET", "queues nowhere", "", None, 404, NOT_FOUND),
    ("PUT", EXCHANGE, "", {"type": "topic"}, 201, None),
    ("PUT", EXCHANGE, "", {"type": "topic"}, 204, None),
    ("PUT", EXCHANGE, "", {"type": "fanout"}, 400, "bad_request"),
    ("PUT", "exchanges / y", "", {"type": "nothing"}, 400, "bad_request"),
    ("PUT", "exchanges / y", "", {}, 201, None),
    ("PUT", "exchanges / amq.mine", "", {"type": "topic"}, 401, "not_authorised"),
    ("GET", "exchanges / nothing", "", None, 404, NOT_FOUND),
    ("GET", "exchanges / amq.default", "", None, 200, {"name": ""}),
    ("POST", BINDINGS, "", {"routing_key": "a/b", "arguments": {}}, 201, None),
    ("POST", BINDINGS, "", {"routing_key": "k", "arguments": {"n": 1}}, 201, None),
    ("POST", BINDINGS, "", {}, 201, None),
    ("POST", "bindings / e x q nothing", "", {}, 404, "not_found"),
    ("POST", "bindings / e nothing q q", "", {}, 404, "not_found"),
    ("POST", "bindings / e amq.default q q", "", {}, 401, "not_authorised"),
    ("POST", "bindings / e x e y", "", {"routing_key": "k"}, 201, None),
    ("GET", f"{BINDINGS} a%2Fb", "", None, 200, {"routing_key": "a/b"}),
    ("GET", f"{BINDINGS} ~", "", None, 200, {"routing_key": ""}),
    ("GET", f"{BINDINGS} other", "", None, 404, NOT_FOUND),
    ("DELETE", f"{BINDINGS} a%2Fb", "", None, 204, None),
    ("DELETE", f"{BINDINGS} a%2Fb", "", None, 404, NOT_FOUND),
    ("DELETE", f"{BINDINGS} ~", "", None, 204, None),
    ("POST", f"{EXCHANGE} publish", "", PUBLISH, 200, {"routed": True}),
    ("POST", f"{EXCHANGE} publish", "", {**PUBLISH, "routing_key": "z"}, 200, {"routed": False}),
    ("POST", f"{EXCHANGE} publish", "", {"payload": "x"}, 400, "bad_request"),
    ("POST", f"{EXCHANGE} publish", "", {**PUBLISH, "payload_encoding": "zip"}, 400, "bad_request"),
    (
        *("POST", f"{EXCHANGE} publish", ""),
        *({**PUBLISH, "payload": "**", "payload_encoding": "base64"}, 400, "bad_request"),
    ),
    (
        *("POST", f"{EXCHANGE} publish", ""),
        *({**PUBLISH, "properties": {"delivery_mode": "x"}}, 400, "bad_request"),
    ),
    ("POST", "exchanges / nothing publish", "", PUBLISH, 400, "bad_request"),
    ("POST", f"{QUEUE} get", "", GET, 200, [{"payload": "hi", "redelivered": False}]),
    ("POST", f"{QUEUE} get", "", GET, 200, [{"payload": "hi", "redelivered": True}]),
    ("POST", f"{QUEUE} get", "", {**GET, "count": "1"}, 200, [{"message_count": 0}]),
    ("POST", f"{QUEUE} get", "", {**GET, "count": "x"}, 400, "bad_request"),
    ("POST", f"{QUEUE} get", "", {**GET, "encoding": "zip"}, 400, "bad_request"),
    ("POST", f"{QUEUE} get", "", {"count": 1, "encoding": "auto"}, 400, "bad_request"),
    (
        *("POST", f"{QUEUE} get", "", {**GET, "encoding": "base64", "truncate": 1}, 200),
        [{"payload": "aA==", "payload_encoding": "base64", "payload_bytes": 2}],
    ),
    ("POST", "queues / nothing get", "", GET, 404, "not_found"),
    ("DELETE", QUEUE, "if-empty=true", None, 400, "bad_request"),
    ("POST", f"{QUEUE} get", "", {**GET, "ackmode": "ack_requeue_false"}, 200, [{"payload": "hi"}]),
    ("POST", f"{QUEUE} get", "", GET, 200, []),
    ("POST", f"{QUEUE} actions", "", {"action": "sync"}, 204, None),
    ("POST", f"{QUEUE} actions", "", {"action": "x"}, 400, "bad_request"),
    ("DELETE", f"{QUEUE} contents", "", None, 204, None),
    ("DELETE", "queues / nothing contents", "", None, 404, NOT_FOUND),
    ("DELETE", EXCHANGE, "if-unused=true", None, 400, "bad_request"),
    ("DELETE", EXCHANGE, "", None, 204, None),
    ("DELETE", EXCHANGE, "", None, 404, NOT_FOUND),
    ("DELETE", "exchanges / amq.topic", "", None, 401, "not_authorised"),
    ("DELETE", "exchanges / amq.default", "", None, 401, "not_authorised"),
    ("DELETE", QUEUE, "if-empty=true", None, 204, None),
    ("DELETE", QUEUE, "", None, 404, NOT_FOUND),
    ("DELETE", "connections nobody", "", None, 404, NOT_FOUND),
    ("GET", "connections nobody", "", None, 404, NOT_FOUND),
    ("GET", "channels nobody", "", None, 404, NOT_FOUND),
    ("GET", "nodes nobody", "", None, 404, NOT_FOUND),
    ("PUT", "global-parameters g", "", {"name": "g", "value": {"a": 1}}, 201, None),
    ("PUT", "global-parameters g", "", {"name": "g", "value": {"a": 2}}, 204, None),
    ("PUT", "global-parameters g", "", {"name": "g"}, 400, "bad_request"),
    ("GET", "global-parameters g", "", None, 200, {"name": "g", "value": {"a": 2}}),
    ("DELETE", "global-parameters g", "", None, 204, None),
    ("DELETE", "global-parameters g", "", None, 404, NOT_FOUND),
    ("PUT", "cluster-name", "", {"name": "ours"}, 204, None),
    ("GET", "cluster-name", "", None, 200, {"name": "ours"}),
    ("PUT", "cluster-name", "", {}, 400, "bad_request"),
    ("GET", "parameters", "", None, 200, []),
    ("GET", "parameters shovel /", "", None, 200, []),
    ("PUT", "parameters shovel / s", "", {"value": {}}, 400, "bad_request"),
    ("GET", "extensions", "", None, 200, []),
    ("GET", "feature-flags", "", None, 200, []),
    ("GET", "aliveness-test /", "", None, 200, {"status": "ok"}),
    ("GET", "aliveness-test nowhere", "", None, 404, NOT_FOUND),
    ("GET", "health checks alarms", "", None, 200, {"status": "ok"}),
    ("GET", "health checks local-alarms", "", None, 200, {"status": "ok"}),
    ("GET", "health checks virtual-hosts", "", None, 200, {"status": "ok"}),
    ("GET", "health checks port-listener 1", "", None, 503, {"status": "failed", "missing": 1}),
    ("GET", "health checks port-listener x", "", None, 400, "bad_request"),
    ("GET", "health checks protocol-listener amqp091", "", None, 200, {"protocol": "amqp"}),
    ("GET", "health checks protocol-listener mqtt", "", None, 503, {"status": "failed"}),
    ("GET", "health checks certificate-expiration 1 months", "", None, 200, {"status": "ok"}),
    ("GET", "health checks node-is-quorum-critical", "", None, 200, {"status": "ok"}),
    ("GET", "health checks other", "", None, 404, NOT_FOUND),
    ("POST", "definitions", "", b"xx", 400, "bad_request"),
    ("POST", "definitions", "", {"queues": [{"name": "q", "vhost": "no"}]}, 400, "bad_request"),
    ("POST", "definitions", "", {"queues": 7}, 400, "bad_request"),
    ("POST", "rebalance queues", "", {}, 204, None),
    ("DELETE", "reset", "", None, 204, None),
    ("POST", "queues / p", "", {}, 405, "Method Not Allowed"),
    ("GET", "nothing", "", None, 404, NOT_FOUND),
    ("GET", "internal node", "", None, 405, "Method Not Allowed"),
    ("POST", "internal node", "", {}, 404, "Not Found"),
]


def fits(shown: object, wanted: object) -> bool:
    """Whether what is wanted is in what is shown."""
    if isinstance(wanted, dict):
        return all(fits(shown[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        pairs = zip(shown, wanted, strict=True)
        return all(fits(one, other) for one, other in pairs)
    return shown == wanted


def test_calls_are_answered_as_by_rabbitmq(web: Api) -> None:
    for method, path, query, body, status, wanted in TABLE:
        answer = web.call(method, *path.split(), query=query, body=body)
        call = f"{method} {path} {body}"
        assert answer.status == status, (call, answer)
        if isinstance(wanted, str):
            assert answer.json["error"] == wanted, (call, answer)
            assert answer.json["reason"], call
        else:
            assert fits(answer.json, wanted), (call, answer)


def test_closing_a_connection_tells_its_client_why(web: Api, stage: Stage) -> None:
    name = web.call("GET", "connections").json[0]["name"]
    assert web.call("GET", "connections", name).json["user"] == "guest"
    web.headers["X-Reason"] = "time to go"
    assert web.call("DELETE", "connections", name).status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="time to go"):
        stage.publisher.queue_declare("", passive=False, exclusive=True)
    assert web.call("GET", "connections", name).status == 404


@pytest.mark.parametrize("name", ["größe", "a\r\nX-Evil: 1", "a b/%2F?#", "\x7f"])
def test_a_queue_of_any_name_can_be_bound_and_found_by_its_location(web: Api, name: str) -> None:
    assert web.call("PUT", "queues", "/", name, body={}).status == 201
    answer = web.call("POST", "bindings", "/", "e", "amq.direct", "q", name, body={})
    assert answer.status == 201
    assert "X-Evil" not in answer.headers
    found = [unquote(part) for part in answer.headers["Location"].split("/")]
    assert found == [name, "~"]
    binding = web.call("GET", "bindings", "/", "e", "amq.direct", "q", *found)
    assert (binding.status, binding.json["destination"]) == (200, name)
    assert web.call("DELETE", "queues", "/", name).status == 204


def test_who_does_not_say_who_it_is_is_asked_as_by_rabbitmq(web: Api) -> None:
    """Monitoring plug-ins that preset the realm send their password for no other."""
    web.headers = {}
    answer = web.call("GET", "overview")
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="RabbitMQ Management"'
