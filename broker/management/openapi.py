"""`GET /api/openapi.json`: the API described by the very table of routes that answers it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from broker.http.messages import Response, json_response
from broker.management.listing import PAGE_SIZE, PAGE_SIZE_MAX
from broker.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.http.admin import Admin, Call, RouteInfo

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_MEANINGS: Final = {
    "200": "As asked for",
    "201": "Made",
    "204": "Done; there is nothing to say",
    "400": "The request cannot be meant",
    "401": "Not logged in, or not allowed",
    "404": "There is no such thing",
    "503": "Not now: an alarm, no quorum, or a node that stops",
}
_AGES: Final = ("lengths", "msg_rates", "data_rates", "node_stats")


def add_openapi(admin: Admin) -> None:
    async def document(_call: Call) -> Response:
        """This document."""
        return json_response(describe(admin.described()))

    admin.add("GET", "/api/openapi.json", document)


def describe(routes: Iterable[RouteInfo]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda one: (one.pattern, one.method)):
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leveret management",
            "version": VERSION,
            "description": "RabbitMQ's management API, and what Leveret has beyond it.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "reason"],
                    "properties": {"error": {"type": "string"}, "reason": {}},
                }
            },
        },
        "security": [{"basic": []}],
    }


def _operation(route: RouteInfo) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identifier(route),
        "summary": route.summary or f"{route.method} {route.pattern}",
        "description": _audience(route),
        "tags": [route.pattern.split("/")[2 if route.pattern.startswith("/api/") else 1]],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {status: _response(status, text) for status, text in _MEANINGS.items()},
    }
    if route.method in _WITH_BODY:
        body = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"content": body}
    return operation


def _audience(route: RouteInfo) -> str:
    if not route.tags:
        return "Without the login that other routes ask for."
    return f"For users with one of the tags {', '.join(sorted(route.tags))}."


def _identifier(route: RouteInfo) -> str:
    words = [word for word in re.split(r"\W+", route.pattern) if word and word != "api"]
    return "_".join((route.method.lower(), *words))


def _path_parameters(route: RouteInfo) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.pattern)
    ]


def _query_parameters(route: RouteInfo) -> list[dict[str, Any]]:
    number = {"type": "integer", "minimum": 1}
    text, truth = {"type": "string"}, {"type": "boolean"}
    schemas: dict[str, dict[str, Any]] = {}
    if route.lists:
        schemas |= {
            "page": number,
            "page_size": number | {"maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE},
            "name": text,
            "use_regex": truth,
            "sort": text,
            "sort_reverse": truth,
            "columns": text,
        }
        schemas |= {f"{kind}_{part}": number for kind in _AGES for part in ("age", "incr")}
    schemas |= dict.fromkeys(route.query, text)
    return [{"name": name, "in": "query", "schema": schema} for name, schema in schemas.items()]


def _response(status: str, text: str) -> dict[str, Any]:
    if int(status) < 400:
        return {"description": text}
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}
