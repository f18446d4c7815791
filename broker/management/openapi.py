"""`GET /api/openapi.json`: the API described, route by route, for those that are there.

Which routes there are, and for whom, is asked of the router; what is said of each stands in
broker.management.api.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from broker.http.messages import Response, json_response
from broker.management.api.schemas import COMPONENTS
from broker.management.api.table import TABLE
from broker.management.api.words import ANY, LISTING, TEXT, Doc, ref
from broker.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.http.admin import Admin, Call, RouteInfo
    from broker.management.api.words import Schema

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_MEANINGS: Final = {
    200: "As asked for",
    201: "Made",
    204: "Done; there is nothing to say",
    400: "The request cannot be meant",
    401: "Not logged in, or not allowed",
    403: "Not allowed, or sent by a page of another site",
    404: "There is no such thing",
    409: "Not as things are now",
    413: "Larger than it may be",
    503: "Not now: an alarm, no quorum, or a node that stops",
}
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PROBLEM: Final = "application/problem+json"
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
ABOUT: Final = """RabbitMQ's management API, what Leveret has beyond it, and topics.

SQS is described by AWS (boto3 has its model); a schema registry by Confluent."""


def add_openapi(admin: Admin) -> None:
    async def document(_call: Call) -> Response:
        return json_response(describe(admin.described()))

    admin.add("GET", "/api/openapi.json", document)


def describe(routes: Iterable[RouteInfo]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda one: (one.pattern, one.method)):
        doc = TABLE.get((route.method, route.pattern)) or _unknown(route)
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, doc)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Leveret", "version": VERSION, "description": ABOUT},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What POST /api/login answers with; for an hour",
                },
            },
            "schemas": COMPONENTS,
        },
        "security": [{"basic": []}, {"token": []}],
    }


def _unknown(route: RouteInfo) -> Doc:
    """What can be said of a route that the table does not have."""
    answers = {200: ANY, 201: ANY, 204: None}
    summary = route.summary or f"{route.method} {route.pattern}"
    return Doc(summary=summary, answers=answers, open=not route.tags)


def _operation(route: RouteInfo, doc: Doc) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identifier(route),
        "summary": doc.summary,
        "description": _audience(route, doc),
        "tags": [route.pattern.split("/")[2 if route.pattern.startswith("/api/") else 1]],
        "parameters": list(_parameters(route, doc)),
        "responses": {str(status): answer for status, answer in _responses(route, doc)},
    }
    if doc.open:
        operation["security"] = []
    if doc.body is not None:
        operation["requestBody"] = _body(doc, doc.body)
    return operation


def _identifier(route: RouteInfo) -> str:
    words = [word for word in re.split(r"\W+", route.pattern) if word and word != "api"]
    return "_".join((route.method.lower(), *words))


def _audience(route: RouteInfo, doc: Doc) -> str:
    if doc.open:
        return "Without a login."
    if not route.tags:
        return "For all users, as far as their permissions go."
    return f"For users with one of the tags {', '.join(sorted(route.tags))}."


def _parameters(route: RouteInfo, doc: Doc) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(route.pattern):
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    query = dict(LISTING) if route.lists else {}
    query |= dict.fromkeys(route.query, TEXT)
    for name, schema in {**query, **doc.query}.items():
        yield {"name": name, "in": "query", "schema": schema}


def _body(doc: Doc, schema: Schema) -> dict[str, Any]:
    media = (_JSON, _FORM) if doc.forms else (_JSON,)
    needed = bool(schema.get("required")) and not doc.open
    return {"required": needed, "content": {kind: {"schema": schema} for kind in media}}


def _responses(route: RouteInfo, doc: Doc) -> Iterator[tuple[int, dict[str, Any]]]:
    for status, schema in doc.answers.items():
        yield status, _response(status, schema, doc.media)
    for status in sorted(_errors(route, doc)):
        if status == 503 and doc.unhealthy is not None:
            either = {"anyOf": [doc.unhealthy, ref("Error")]}
            yield status, _response(status, either, _JSON)
        elif doc.problems:
            yield status, _response(status, ref("Problem"), _PROBLEM)
        else:
            yield status, _response(status, ref("Error"), _JSON)


def _errors(route: RouteInfo, doc: Doc) -> set[int]:
    """Of a route of this kind."""
    statuses = {400, 503, *doc.errors}
    if not doc.open:
        statuses.add(401)
    if route.method in _CHANGES or doc.problems:
        statuses.add(403)
    if _PARAMETER.search(route.pattern):
        statuses.add(404)
    if doc.body is not None:
        statuses.add(413)
    return statuses


def _response(status: int, schema: Schema | None, media: str) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _MEANINGS[status]}
    if schema is not None:
        response["content"] = {media: {"schema": schema}}
    return response
