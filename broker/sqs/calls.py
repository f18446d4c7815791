"""A call by somebody who may call: the queue that it is about, permissions, waiting.

An operation is a function of a call and its parameters. Like any route it decides and acts without
awaiting in between; where only the leader of a queue can act, `led_here` says so and the call is
carried there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from broker.cluster.front import QueueFront
from broker.http.admin import Call, LedElsewhereError
from broker.protocol.errors import ChannelError
from broker.security.checks import check
from broker.sqs.errors import (
    ACCESS_DENIED,
    BAD_PARAMETER,
    INTERNAL,
    UNAVAILABLE,
    UNSUPPORTED,
    Kind,
    SqsError,
    no_queue,
)
from broker.sqs.names import Place, arn_of, place_of, url_path
from queues.options import QueueOptions
from queues.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.node import Node
    from broker.security.permissions import Action
    from broker.sqs.holding import Holders
    from broker.sqs.moving import Tasks
    from broker.sqs.parameters import Parameters
    from broker.vhost import VHost
    from queues.raft.messages import NodeId
    from queues.seams import AnyQueue

_KINDS: dict[int, Kind] = {
    403: ACCESS_DENIED,
    405: ACCESS_DENIED,
    406: BAD_PARAMETER,
    506: UNAVAILABLE,
}


class Carry(Protocol):
    """Have another node answer a call."""

    async def __call__(
        self, node: NodeId, call: SqsCall, action: str, values: Mapping[str, Any]
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsCall:
    """Who calls, and where they think that they are."""

    http: Call
    vhost: VHost  # that the endpoint names
    base_url: str
    region: str
    holders: Holders
    tasks: Tasks
    carry: Carry
    hangup: Callable[[], Awaitable[None]]

    @property
    def node(self) -> Node:
        return self.http.node

    def url_of(self, vhost: VHost, name: str) -> str:
        return self.base_url + url_path(Place(vhost.name, name))

    def arn_of(self, name: str) -> str:
        return arn_of(name, self.region)

    def authorize(self, action: Action, vhost: VHost, name: str) -> None:
        """As AMQP does for the same; raises ChannelError. An empty name: the default exchange."""
        check(self.http.user, vhost.name, action, "queue" if name else "exchange", name)

    def place(self, parameters: Parameters) -> tuple[VHost, str]:
        """The vhost and the name in the parameter QueueUrl."""
        place = place_of(parameters.text("QueueUrl"), self.vhost.name)
        if place.vhost == self.vhost.name:
            return self.vhost, place.name
        vhost = self.node.vhosts.get(place.vhost)
        if vhost is None or not self.http.user.may_enter(place.vhost):
            raise no_queue()
        return vhost, place.name

    async def find(self, parameters: Parameters) -> tuple[VHost, AnyQueue]:
        """The queue that QueueUrl names."""
        vhost, name = self.place(parameters)
        return vhost, await self.queue(vhost, name)

    async def queue(self, vhost: VHost, name: str) -> AnyQueue:
        """A queue by name, which may have been made on another node just now."""
        if name not in vhost.queues and vhost.catalog is not None:
            await self.http.succeeds(vhost.catalog.read)
        return self.known_queue(vhost, name)

    def known_queue(self, vhost: VHost, name: str) -> AnyQueue:
        try:
            queue = vhost.queue(name, user_of=self)
        except ChannelError as error:
            raise sqs_error(error) from None
        if not isinstance(queue.options, QueueOptions):
            raise SqsError(UNSUPPORTED, f"Queue '{name}' is a stream.")
        return queue


def led_here(queue: AnyQueue) -> Queue:
    """The queue itself; LedElsewhereError if another node has it."""
    if isinstance(queue, QueueFront):
        if queue.queue is None:
            raise LedElsewhereError(f"queue {queue.name!r}", queue.leader)
        return queue.queue
    assert isinstance(queue, Queue)
    return queue


def options_of(queue: AnyQueue) -> QueueOptions:
    options = queue.options
    assert isinstance(options, QueueOptions)
    return options


def sqs_error(error: ChannelError) -> SqsError:
    """What AMQP's refusals are called here."""
    if error.code == 404:
        return no_queue()
    return SqsError(_KINDS.get(error.code, INTERNAL), error.text)
