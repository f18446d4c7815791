"""HTTP requests carried between nodes."""

import pytest
import trio

from broker.cluster.errands import Errands
from broker.cluster.kinds import Kind
from broker.http.admin import Admin, LedElsewhereError
from broker.http.auth import ADMINISTRATORS
from broker.http.messages import HttpError, Request, Response, json_response
from broker.http.router import Router
from broker.security.permissions import Permission
from broker.security.user import User

NAMES = {1: "a", 2: "b"}
GUEST = User(
    "guest",
    tags=["administrator"],
    permissions={"/": Permission("^a", "", ".*")},
)


class Mail:
    """Both ends of a link between two nodes; it can be cut."""

    def __init__(self, me, links):
        self._me = me
        self._links = links
        self.other = None
        self.sizes = []

    def is_up(self, node):
        return self._links["up"] and node != self._me

    def up(self):
        return {3 - self._me} if self._links["up"] else set()

    def send_large(self, node, key, *pieces):
        self.send(node, key[0], *pieces)

    def carries(self, node, key):
        return False

    def send(self, node, kind, *pieces):
        body = b"".join(pieces)
        self.sizes.append(len(body))
        if self.is_up(node):
            receive = self.other.called if kind == Kind.CALL else self.other.answered
            receive(self._me, body)


class TwoNodes:
    def __init__(self):
        self.links = {"up": True}
        self.mails = {node: Mail(node, self.links) for node in NAMES}
        self.errands = {node: Errands(self.mails[node], NAMES.__getitem__) for node in NAMES}
        for node, mail in self.mails.items():
            mail.other = self.errands[3 - node]

    def cut(self):
        self.links["up"] = False
        for node, errands in self.errands.items():
            errands.node_down(3 - node)


@pytest.fixture
async def two(nursery):
    nodes = TwoNodes()
    for errands in nodes.errands.values():
        await nursery.start(errands.run)
    return nodes


async def test_a_request_is_answered_by_the_other_node_in_the_name_of_the_user(two):
    async def serve(request):
        user = request.caller
        assert (request.method, request.path, request.query) == ("POST", "/x%2F", {"q": ["1"]})
        assert (user.name, user.tags) == ("guest", {"administrator"})
        assert user.may("/", "configure", "abc")
        assert not user.may("/", "configure", "b")
        assert not user.may("/", "write", "abc")
        assert not user.may_enter("other")
        return Response(status=201, headers={"X": "y"}, body=request.body[::-1])

    two.errands[2].serve = serve
    body = bytes(range(256)) * 8192  # more than a message between nodes may have
    request = Request(method="POST", path="/x%2F", query={"q": ["1"]}, body=body)
    response = await two.errands[1].carry(2, request, GUEST)
    assert response == Response(status=201, headers={"X": "y"}, body=body[::-1])
    assert len(two.mails[1].sizes) > 1


async def test_what_went_wrong_there_is_told_here(two):
    async def serve(_request):
        raise HttpError(404, "there is no such thing")

    request = Request(method="GET", path="/")
    two.cut()
    with pytest.raises(HttpError, match="cannot be reached"):
        await two.errands[1].carry(2, request, GUEST)
    two.links["up"] = True
    response = await two.errands[1].carry(2, request, GUEST)
    assert response.status == 503  # it serves nothing yet
    two.errands[2].serve = serve
    response = await two.errands[1].carry(2, request, GUEST)
    assert response.status == 404
    assert b"no such thing" in response.body


async def test_a_node_that_is_lost_before_it_answers_is_an_error(two, autojump_clock):
    async def serve(_request):
        await trio.sleep(10)
        return Response()

    two.errands[2].serve = serve
    request = Request(method="GET", path="/")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_later, 1, two.cut)
        with pytest.raises(HttpError, match="b, which has to answer, cannot be reached") as lost:
            await two.errands[1].carry(2, request, GUEST)
    assert lost.value.status == 503


async def _later(seconds, act):
    await trio.sleep(seconds)
    act()


async def test_a_node_that_never_answers_is_an_error(two, autojump_clock):
    async def serve(_request):
        await trio.sleep_forever()

    two.errands[2].serve = serve
    with pytest.raises(HttpError, match="did not answer in time"):
        await two.errands[1].carry(2, Request(method="GET", path="/"), GUEST)


class FakeNode:
    stopping = False


def route(errands, led_by):
    """A route that only one node can take, as if every node believed that."""
    router = Router()

    async def answer(call):
        if led_by is not NotImplemented:
            raise LedElsewhereError("queue 'q'", led_by)
        return json_response(call.user.name)

    Admin(FakeNode(), router, errands).add("GET", "/q", answer, tags=ADMINISTRATORS)
    return router


async def test_a_request_is_passed_on_to_the_leader_once(two):
    request = Request(method="GET", path="/q", caller=GUEST)
    two.errands[2].serve = route(two.errands[2], 1).dispatch
    with pytest.raises(HttpError, match="another node leads queue 'q' since a moment ago"):
        await route(two.errands[1], 2).dispatch(request)
    with pytest.raises(HttpError, match="no node leads queue 'q' now"):
        await route(two.errands[1], None).dispatch(request)
    response = await two.errands[1].carry(2, Request(method="GET", path="/q"), GUEST)
    assert response.status == 503  # it would have to come back here
    two.errands[2].serve = route(two.errands[2], NotImplemented).dispatch
    response = await two.errands[1].carry(2, Request(method="GET", path="/q"), GUEST)
    assert response.body == b'"guest"\n'


async def test_tags_count_on_the_node_that_answers_too(two):
    two.errands[2].serve = route(two.errands[2], NotImplemented).dispatch
    nobody = User("nobody", tags=["management"], permissions={})
    response = await two.errands[1].carry(2, Request(method="GET", path="/q"), nobody)
    assert response.status == 401
