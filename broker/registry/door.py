"""The routes of the registry, at the root of the HTTP port as Confluent has them.

Any user may log in; what they may do is in broker.registry.asking.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.http.admin import Call
from broker.http.auth import log_in
from broker.http.messages import HttpError, Request, Response
from broker.protocol.errors import AMQPError
from broker.registry import by_id, checking, errors, settings, subjects
from broker.registry.asking import Ask
from broker.registry.changing import Changer

if TYPE_CHECKING:
    from broker.http.router import Router
    from broker.node import Node

Handler = Callable[[Ask], Awaitable[Any]]

SUBJECT: Final = "/subjects/{subject}"
VERSION: Final = f"{SUBJECT}/versions/{{version}}"
CHECK: Final = "/compatibility/subjects/{subject}/versions"
ID: Final = "/schemas/ids/{id}"
_JSON: Final = "application/json"
_SHORT: Final = 20  # rows


class SchemaRegistry:
    """The door of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        changer = Changer()
        self._reading: Final[dict[str, Handler]] = {
            "/subjects": subjects.list_subjects,
            f"{SUBJECT}/versions": subjects.list_versions,
            f"{SUBJECT}/metadata": subjects.get_with_metadata,
            VERSION: subjects.get_version,
            f"{VERSION}/schema": subjects.get_text,
            f"{VERSION}/referencedby": subjects.get_referrers,
            "/schemas": by_id.list_schemas,
            "/schemas/types": by_id.list_types,
            ID: by_id.get_schema,
            f"{ID}/schema": by_id.get_text,
            f"{ID}/versions": by_id.get_versions,
            f"{ID}/subjects": by_id.get_subjects,
            "/schemas/guids/{guid}": by_id.get_by_guid,
            "/schemas/guids/{guid}/ids": by_id.get_ids,
            "/contexts": by_id.list_contexts,
            "/config": settings.get_config,
            "/config/{subject}": settings.get_config,
            "/mode": settings.get_mode,
            "/mode/{subject}": settings.get_mode,
        }
        self._changing: Final[list[tuple[str, str, Handler]]] = [
            ("POST", SUBJECT, subjects.look_up),
            ("POST", CHECK, checking.check_all),
            ("POST", f"{CHECK}/{{version}}", checking.check_version),
            ("POST", f"{SUBJECT}/versions", partial(subjects.register, changer)),
            ("DELETE", SUBJECT, partial(subjects.delete_subject, changer)),
            ("DELETE", VERSION, partial(subjects.delete_version, changer)),
            ("PUT", "/config", partial(settings.put_config, changer)),
            ("PUT", "/config/{subject}", partial(settings.put_config, changer)),
            ("DELETE", "/config", partial(settings.delete_config, changer)),
            ("DELETE", "/config/{subject}", partial(settings.delete_config, changer)),
            ("PUT", "/mode", partial(settings.put_mode, changer)),
            ("PUT", "/mode/{subject}", partial(settings.put_mode, changer)),
            ("DELETE", "/mode", partial(settings.delete_mode, changer)),
            ("DELETE", "/mode/{subject}", partial(settings.delete_mode, changer)),
        ]

    def add_routes(self, router: Router) -> None:
        for pattern, handler in self._reading.items():
            self._add(router, "GET", pattern, handler)
        for method, pattern, handler in self._changing:
            self._add(router, method, pattern, handler)

    def _add(self, router: Router, method: str, pattern: str, handler: Handler) -> None:
        async def answer(request: Request) -> Response:
            try:
                return await _response(request, await self._answer(handler, request))
            except HttpError as error:
                raise errors.from_http(error) from None
            except AMQPError as error:
                raise errors.from_amqp(error) from None

        router.add(method, pattern, answer, listed=False)  # its errors are Confluent's

    async def _answer(self, handler: Handler, request: Request) -> Any:
        node = self._node
        if node.stopping:
            raise errors.RegistryError(errors.UNAVAILABLE, "the node is stopping")
        call = Call(node=node, user=await log_in(request, node), request=request)
        ask = Ask(call, node.schemas)
        subject = request.parameters.get("subject")
        if subject is not None and subject not in node.schemas.subjects:
            await call.up_to_date()  # another node may have made it a moment ago
        value = await handler(ask)
        if node.journal is not None:
            # What it says may have been changed a moment ago, and not be on the disk yet.
            await call.happens(node.journal.when_durable)
        return value


async def _json(value: Any) -> str:
    """A list of schemas takes a while; any other answer is short."""
    if isinstance(value, list) and len(value) > _SHORT and isinstance(value[0], dict):
        return await trio.to_thread.run_sync(json.dumps, value)
    return json.dumps(value)


async def _response(request: Request, value: Any) -> Response:
    """A text is a schema, and JSON as it is."""
    accepted = request.headers.get("accept", "")
    plain = _JSON in accepted and "vnd.schemaregistry" not in accepted
    body = value if isinstance(value, str) else await _json(value)
    return Response(
        headers={"Content-Type": _JSON if plain else errors.CONTENT_TYPE},
        body=body.encode() + b"\n",
    )
