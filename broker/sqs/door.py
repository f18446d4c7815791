"""The routes of SQS: who calls, in which protocol, and which node has to answer.

POST /                              boto3 and others, with `endpoint_url` and nothing behind it
POST /sqs/{vhost}                   the same for another vhost than "/"
POST, GET /000000000000/{name}      the older protocol, which names the queue in the path
POST /queue/{name}?Action=…         the short form (see broker.sqs.short_form)
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import trio

from broker import logs
from broker.http.admin import INTERNAL, Call, LedElsewhereError
from broker.http.auth import log_in
from broker.http.messages import HttpError, Request, Response
from broker.protocol.errors import ChannelError
from broker.security.fair_hashing import neighbourhood
from broker.sqs import json_protocol, moving, query_protocol, queues, receiving, sending, signature
from broker.sqs.calls import SqsCall, sqs_error
from broker.sqs.errors import (
    ACCESS_DENIED,
    BAD_ACTION,
    TOO_LARGE,
    UNAVAILABLE,
    UNKNOWN_KEY,
    UNSIGNED,
    Kind,
    SqsError,
    no_queue,
)
from broker.sqs.holding import Holders
from broker.sqs.keys import AccessKeys
from broker.sqs.names import ACCOUNT, DEFAULT_VHOST, PREFIX, REGION
from broker.sqs.parameters import Parameters

if TYPE_CHECKING:
    from types import ModuleType

    from broker.http.admin import Elsewhere
    from broker.http.router import Router
    from broker.node import Node
    from broker.security.user import User
    from queues.raft.messages import NodeId

Operation = Callable[[SqsCall, Parameters], Awaitable[dict[str, Any]]]

OPERATIONS: Final[dict[str, Operation]] = {
    "AddPermission": queues.refuse_permissions,
    "CancelMessageMoveTask": moving.cancel,
    "ChangeMessageVisibility": receiving.change_visibility,
    "ChangeMessageVisibilityBatch": receiving.change_visibility_batch,
    "CreateQueue": queues.create,
    "DeleteMessage": receiving.delete,
    "DeleteMessageBatch": receiving.delete_batch,
    "DeleteQueue": queues.delete,
    "GetQueueAttributes": queues.get_attributes,
    "GetQueueUrl": queues.get_url,
    "ListDeadLetterSourceQueues": queues.list_sources,
    "ListMessageMoveTasks": moving.list_tasks,
    "ListQueueTags": queues.list_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": queues.purge,
    "ReceiveMessage": receiving.receive,
    "RemovePermission": queues.refuse_permissions,
    "SendMessage": sending.send,
    "SendMessageBatch": sending.send_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": moving.start,
    "TagQueue": queues.tag,
    "UntagQueue": queues.untag,
}
BETWEEN_NODES: Final = f"{INTERNAL}sqs"
# A batch of 256 KiB as a form in which every byte is escaped has 768 KiB, as JSON not more.
REQUEST_BYTES_MAX: Final = 1024 * 1024
SIGNERS_MAX: Final = 10_000  # remembered as those who are let in during a flood of guesses
LEADER_WAIT_S: Final = 10.0  # for a queue to have one, after which the client may try again
LEADER_LOOK_S: Final = 0.05

_log = logs.get("sqs")


class Sqs:
    """The front door of a node."""

    def __init__(self, node: Node, elsewhere: Elsewhere | None = None) -> None:
        self._node = node
        self._elsewhere = elsewhere
        self._keys = AccessKeys(node)
        self._verifier = signature.Verifier()
        self._nobodys = os.urandom(32).hex()  # what an unknown key is compared with
        self._signers: set[tuple[str, str]] = (
            set()
        )  # keys that were right, and where they came from
        self._holders = Holders(os.urandom)
        self.tasks = moving.Tasks()

    def add_routes(self, router: Router) -> None:
        """Not among those of the management API, whose errors look otherwise."""
        with_queue = (f"/{ACCOUNT}/{{name}}", f"/{PREFIX}/{{vhost}}/{ACCOUNT}/{{name}}")
        for path in ("/", f"/{PREFIX}/{{vhost}}", *with_queue):
            router.add("POST", path, self._answer, listed=False)
        for path in with_queue:
            router.add("GET", path, self._answer, listed=False)
        router.add("POST", BETWEEN_NODES, self._answer_node, listed=False)

    async def _answer(self, request: Request) -> Response:
        request_id = str(uuid4())
        protocol: ModuleType = query_protocol
        if json_protocol.is_json_call(request):
            protocol = json_protocol
        try:
            user, region = await self.log_in(request)  # first: nobody is parsed for unknown
            if protocol is json_protocol:
                action = json_protocol.action_of(request)
                values = json_protocol.parse_object(request.body)
            else:
                action, values = query_protocol.parse(request)
                if "name" in request.parameters:
                    values.setdefault("QueueUrl", request.path)
            vhost = request.parameters.get("vhost", DEFAULT_VHOST)
            result = await self.perform(request, user, region, vhost, action, values)
            response: Response = protocol.result(action, result, request_id)
        except SqsError as error:
            response = protocol.error(error, request_id)
        return response

    # Who calls

    async def log_in(self, request: Request) -> tuple[User, str]:
        """The user who signed, or gave a password, and the region; raises SqsError.

        It comes before anything else is made of a request.
        """
        if len(request.body) > REQUEST_BYTES_MAX:
            text = f"A request has {REQUEST_BYTES_MAX} bytes at most."
            raise SqsError(TOO_LARGE, text)
        if self._node.stopping:
            raise SqsError(UNAVAILABLE, "The node is stopping.")
        if signature.is_signed(request):
            claim = signature.read_claim(request)
            user = await self._signer(request, claim)
            request.logged_in()
            return user, claim.region
        if "authorization" not in request.headers:
            raise SqsError(UNSIGNED, "Request is missing Authentication Token.")
        try:
            user = await log_in(request, self._node)
        except HttpError as error:
            if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
                raise SqsError(UNAVAILABLE, error.reason) from None
            raise SqsError(UNKNOWN_KEY, error.reason) from None
        return user, REGION

    async def _signer(self, request: Request, claim: signature.Claim) -> User:
        """Whoever signed it. An unknown key is refused as a wrong signature is, in all respects."""
        known = (claim.key_id, neighbourhood(request.peer))
        doorkeeper = self._node.doorkeeper
        if known not in self._signers and doorkeeper.crowded(request.peer):
            raise signature.mismatch()  # unseen: a flood of guesses learns nothing
        secret = self._keys.secret_of(claim.key_id)
        problem = signature.mismatch()
        try:
            now_s = self._node.timers.now_ms() / 1000
            self._verifier.check(request, claim, secret or self._nobodys, now_s)
            user = await self._keys.user_of(claim.key_id, request.peer)
            if user is not None:
                self._remember(known)
                return user
        except SqsError as error:
            problem = error
        _log.warning("signature_refused", key=claim.key_id, peer=request.peer)
        await doorkeeper.refuse(claim.key_id, request.peer)
        raise problem

    def _remember(self, signer: tuple[str, str]) -> None:
        if len(self._signers) >= SIGNERS_MAX:
            self._signers.clear()
        self._signers.add(signer)

    # What is to be done

    async def perform(
        self,
        request: Request,
        user: User,
        region: str,
        vhost: str,
        action: str,
        values: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Carry out a call, here or where it can be; raises SqsError."""
        call = self._call(request, user, region, vhost, _base_url(request))
        until = trio.current_time() + LEADER_WAIT_S
        while True:
            try:
                return await self._carry_out_somewhere(call, action, values)
            except LedElsewhereError as error:
                if trio.current_time() > until:
                    raise SqsError(UNAVAILABLE, f"No node leads {error.what} now.") from None
            await trio.sleep(LEADER_LOOK_S)

    async def _carry_out_somewhere(
        self, call: SqsCall, action: str, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """LedElsewhereError if no node can, for now."""
        try:
            return await _carry_out(call, action, values)
        except LedElsewhereError as error:
            if error.node is None:
                raise
            leader = error.node
        return await self._carry(leader, call, action, values)

    def _call(
        self, request: Request, user: User, region: str, vhost_name: str, base_url: str
    ) -> SqsCall:
        if not user.may_enter(vhost_name):
            text = f"access to vhost '{vhost_name}' refused for user '{user.name}'"
            raise SqsError(ACCESS_DENIED, text)
        vhost = self._node.vhosts.get(vhost_name)
        if vhost is None:
            raise no_queue()
        return SqsCall(
            http=Call(node=self._node, user=user, request=request, elsewhere=self._elsewhere),
            vhost=vhost,
            base_url=base_url,
            region=region,
            holders=self._holders,
            tasks=self.tasks,
            carry=self._carry,
            hangup=request.hangup,
        )

    # Between nodes

    async def _carry(
        self, node: NodeId, call: SqsCall, action: str, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Have the node answer that leads the queue; LedElsewhereError if it does not any more."""
        assert self._elsewhere is not None
        where = {"vhost": call.vhost.name, "base_url": call.base_url, "region": call.region}
        body = json.dumps({"action": action, "values": dict(values), **where}).encode()
        request = Request(method="POST", path=BETWEEN_NODES, body=body)
        try:
            response = await self._elsewhere.carry(node, request, call.http.user)
        except HttpError as error:
            raise SqsError(UNAVAILABLE, error.reason) from None
        answer = json.loads(response.body)
        if "led_elsewhere" in answer:
            raise LedElsewhereError(answer["led_elsewhere"], None)
        if "problem" in answer:
            name, code, status = answer["problem"]
            raise SqsError(Kind(name, code, status), answer["text"])
        if "result" not in answer:  # it could not even begin
            raise SqsError(UNAVAILABLE, str(answer.get("reason", "The node did not answer.")))
        result: dict[str, Any] = answer["result"]
        return result

    async def _answer_node(self, request: Request) -> Response:
        """What another node asks for its client."""
        user = request.caller
        if user is None:
            raise HttpError(404, "there is nothing at this path")
        asked = json.loads(request.body)
        answer: dict[str, Any]
        try:
            call = self._call(request, user, asked["region"], asked["vhost"], asked["base_url"])
            answer = {"result": await _carry_out(call, asked["action"], asked["values"])}
        except LedElsewhereError as error:
            answer = {"led_elsewhere": error.what}
        except SqsError as error:
            answer = {"problem": list(error.kind), "text": error.text}
        return Response(body=json.dumps(answer).encode())


async def _carry_out(call: SqsCall, action: str, values: Mapping[str, Any]) -> dict[str, Any]:
    operation = OPERATIONS.get(action)
    if operation is None:
        raise SqsError(BAD_ACTION, f"The action {action:.100} is not valid for this endpoint.")
    try:
        return await operation(call, Parameters(values))
    except ChannelError as error:
        raise sqs_error(error) from None
    except HttpError as error:
        raise SqsError(UNAVAILABLE, error.reason) from None


def _base_url(request: Request) -> str:
    host = request.headers.get("host", "")
    return f"{request.scheme}://{host}"
