"""The API's description is whole; that it is true, test_schemathesis tells."""

import json
import re

import pytest

from broker.management.api.table import TABLE
from tests.support.admin import Api
from tests.support.process import BrokerProcess


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


def test_every_operation_is_said_something_of(document) -> None:
    """In broker.management.api; routes that others describe have no entry there."""
    there = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {one for one in there if one[1].startswith("/api/")} <= TABLE.keys()
    assert TABLE.keys() <= there


def test_references_lead_somewhere(document) -> None:
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()
    assert "Problem" in references


def test_topics_are_described_with_their_own_errors(document) -> None:
    produce = document["paths"]["/api/topics/{topic}/produce"]["post"]
    assert set(produce["responses"]["404"]["content"]) == {"application/problem+json"}
    assert "acks" in {one["name"] for one in produce["parameters"]}
    schemes = document["components"]["securitySchemes"]
    assert {one["scheme"] for one in schemes.values()} == {"basic", "bearer"}


def test_every_path_that_is_described_is_there(document, web: Api) -> None:
    for path in document["paths"]:
        if not path.startswith("/api/"):
            continue
        parts = ["/" if part == "{vhost}" else part for part in path.split("/")[2:]]
        answer = web.call("OPTIONS", *parts)
        assert answer.status == 405, path
