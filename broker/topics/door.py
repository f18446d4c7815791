"""The routes of topics: who calls, in which vhost, and errors as problem+json.

POST    /api/admin/topics                {name, partitions, replicationFactor, retentionMs}
GET     /api/admin/topics
GET     /api/admin/topics/{topic}
DELETE  /api/admin/topics/{topic}
POST    /api/topics/{topic}/produce      {key, value, headers} or {records: […]}; ?acks=
GET     /api/topics/{topic}/consume      ?group=&maxMessages=&timeoutMs=&session=
DELETE  /api/topics/{topic}/consume      ?group=&session=
POST    /api/topics/{topic}/commit       {group, session, offsets}
POST    /api/topics/{topic}/seek         {group, session, offsets or to}
GET     /api/topics/{topic}/lag          ?group=

All take `?vhost=`, which is "/" otherwise. No tag is needed, only permissions, as over AMQP.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from broker.http.admin import Call, Handler
from broker.http.auth import log_in
from broker.http.messages import HttpError, Request, Response
from broker.protocol.errors import AMQPError
from broker.topics import administration
from broker.topics.asking import Asker
from broker.topics.consuming import Consuming
from broker.topics.fields import text_asked
from broker.topics.offsets import Offsets
from broker.topics.problems import from_amqp, from_http
from broker.topics.producing import Producing
from broker.topics.sessions import Sessions

if TYPE_CHECKING:
    from broker.http.admin import Elsewhere
    from broker.http.router import Router
    from broker.node import Node
    from broker.streams.service import StreamService
    from queues.raft.messages import NodeId

DEFAULT_VHOST: Final = "/"


class Topics:
    """The door of a node; `sessions` has to be run."""

    def __init__(
        self, node: Node, service: StreamService, elsewhere: Elsewhere | None, me: NodeId
    ) -> None:
        """`me`: this node's number in its cluster; 0 alone."""
        self._node = node
        self._elsewhere = elsewhere
        self._asker = Asker(node, service)
        self.sessions = Sessions(self._asker, me)

    def add_routes(self, router: Router) -> None:
        producing = Producing(self._asker)
        consuming = Consuming(self.sessions)
        offsets = Offsets(self._asker, self.sessions)
        topic = "/api/topics/{topic}"
        for method, pattern, handler in (
            ("POST", "/api/admin/topics", administration.create),
            ("GET", "/api/admin/topics", administration.list_topics),
            ("GET", "/api/admin/topics/{topic}", administration.describe),
            ("DELETE", "/api/admin/topics/{topic}", administration.delete),
            ("POST", f"{topic}/produce", producing.produce),
            ("GET", f"{topic}/consume", consuming.consume),
            ("DELETE", f"{topic}/consume", consuming.leave),
            ("POST", f"{topic}/commit", offsets.commit),
            ("POST", f"{topic}/seek", offsets.seek),
            ("GET", f"{topic}/lag", offsets.lag),
        ):
            self._add(router, method, pattern, handler)

    def _add(self, router: Router, method: str, pattern: str, handler: Handler) -> None:
        async def answer(request: Request) -> Response:
            try:
                return await handler(await self._call(request))
            except HttpError as error:
                raise from_http(error) from None
            except AMQPError as error:
                raise from_amqp(error) from None

        router.add(method, pattern, answer)

    async def _call(self, request: Request) -> Call:
        if self._node.stopping:
            raise HttpError(503, "the node is stopping")
        user = request.caller
        if user is None:
            user = await log_in(request, self._node)
        vhost = text_asked(request, "vhost", DEFAULT_VHOST)
        request = dataclasses.replace(request, parameters={**request.parameters, "vhost": vhost})
        call = Call(node=self._node, user=user, request=request, elsewhere=self._elsewhere)
        if request.parameters.get("topic") not in call.vhost().queues:
            await call.up_to_date()  # another node may have made it a moment ago
        return call
