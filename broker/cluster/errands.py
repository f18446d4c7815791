"""HTTP requests that another node has to answer: carried there, and its answers back.

In CBOR, as parcels:

    CALL    [number, method, path, query, body, user]; user: [name, tags,
            {vhost: [configure, write, read]}, [[vhost, exchange, write, read], …]]
    ANSWER  [number, status, headers, body]

Who calls was found out by the node that the client is connected to; the other one goes by that.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import cbor2
import trio

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import Parcels, send_parcel
from broker.http.messages import HttpError, Request, Response
from broker.internal_errors import CLUSTER, HTTP, InternalErrors
from broker.security.permissions import Permission, TopicPermission
from broker.security.user import User
from queues.raft.messages import NodeId

ERRAND_S: Final = 60.0  # longer than a route waits for anything
# At a time, for other nodes; each has its limit for its own clients, who may all wait for messages.
SERVED_MAX: Final = 2048


class _Errand:
    """Somebody waits for another node."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.answer: Response | HttpError | None = None
        self.over = trio.Event()

    def end(self, answer: Response | HttpError) -> None:
        self.answer = answer
        self.over.set()


class Errands:
    """One per node of a cluster."""

    def __init__(
        self, mail: Mail, name_of: Callable[[NodeId], str], errors: InternalErrors | None = None
    ) -> None:
        self._errors = errors or InternalErrors()
        self._mail = mail
        self._name_of = name_of
        self.serve: Callable[[Request], Awaitable[Response]] | None = None  # from when there is one
        self._nursery: trio.Nursery | None = None
        self._parcels = {Kind.CALL: Parcels(), Kind.ANSWER: Parcels()}
        self._open: dict[int, _Errand] = {}
        self._last = 0
        self._serving = 0
        self.flush: Callable[[], None] = lambda: None

    def others(self) -> list[NodeId]:
        """Those that can be asked."""
        return sorted(self._mail.up())

    async def carry(self, node: NodeId, request: Request, user: User) -> Response:
        """Have that node answer. Raises HttpError: 503 if it does not."""
        if not self._mail.is_up(node):
            raise self._lost(node)
        self._last += 1
        number = self._last
        errand = self._open[number] = _Errand(node)
        query = {name: list(texts) for name, texts in request.query.items()}
        call = [number, request.method, request.path, query, request.body, _pack_user(user)]
        try:
            send_parcel(self._mail, node, Kind.CALL, [cbor2.dumps(call)])
            self.flush()
            with trio.move_on_after(ERRAND_S):
                await errand.over.wait()
        finally:
            del self._open[number]
        if errand.answer is None:
            raise HttpError(503, f"node {self._name_of(node)} did not answer in time")
        if isinstance(errand.answer, HttpError):
            raise errand.answer
        return errand.answer

    def _lost(self, node: NodeId) -> HttpError:
        return HttpError(503, f"node {self._name_of(node)}, which has to answer, cannot be reached")

    # Between nodes

    def called(self, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind CALL."""
        parcel = self._parcels[Kind.CALL].taken(node, body)
        if parcel is None:
            return
        number, method, path, query, content, user = cbor2.loads(parcel)
        if self.serve is None or self._nursery is None or self._serving >= SERVED_MAX:
            busy = "is starting" if self.serve is None else "has too much to do"
            self._answer(node, number, HttpError(503, f"the node {busy}").response())
            return
        request = Request(
            method=method, path=path, query=query, body=content, caller=_unpack_user(user)
        )
        self._nursery.start_soon(self._run_guarded, node, number, request)

    async def _run_guarded(self, node: NodeId, number: int, request: Request) -> None:
        with self._errors.guard(CLUSTER, path=request.path):
            await self._run(node, number, request)

    async def _run(self, node: NodeId, number: int, request: Request) -> None:
        assert self.serve is not None
        self._serving += 1
        try:
            response = await self.serve(request)
        except HttpError as error:
            response = error.response()
        except Exception as error:  # noqa: BLE001 - one route's bug must not take the node down
            self._errors.note(HTTP, error, method=request.method, path=request.path)
            response = HttpError(500, "internal error, see the node's log").response()
        finally:
            self._serving -= 1
        self._answer(node, number, response)
        self.flush()

    def _answer(self, node: NodeId, number: int, response: Response) -> None:
        answer = [number, int(response.status), dict(response.headers), response.body]
        send_parcel(self._mail, node, Kind.ANSWER, [cbor2.dumps(answer)])

    def answered(self, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind ANSWER."""
        parcel = self._parcels[Kind.ANSWER].taken(node, body)
        if parcel is None:
            return
        number, status, headers, content = cbor2.loads(parcel)
        errand = self._open.get(number)
        if errand is not None and errand.node == node:
            errand.end(Response(status=status, headers=headers, body=content))

    def node_down(self, node: NodeId) -> None:
        for parcels in self._parcels.values():
            parcels.lost(node)
        for errand in list(self._open.values()):
            if errand.node == node:
                errand.end(self._lost(node))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer what other nodes ask."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()


def _pack_user(user: User) -> list[object]:
    permissions = {vhost: [p.configure, p.write, p.read] for vhost, p in user.permissions.items()}
    topics = [[*where, t.write, t.read] for where, t in user.topic_permissions().items()]
    return [user.name, sorted(user.tags), permissions, topics]


def _unpack_user(packed: list[object]) -> User:
    name, tags, permissions, topics = packed
    assert isinstance(name, str)
    assert isinstance(tags, list)
    assert isinstance(permissions, dict)
    assert isinstance(topics, list)
    known = {vhost: Permission(*patterns) for vhost, patterns in permissions.items()}
    user = User(name, tags=tags, permissions=known)
    for vhost, exchange, write, read in topics:
        user.permit_topics(vhost, exchange, TopicPermission(write, read))
    return user
