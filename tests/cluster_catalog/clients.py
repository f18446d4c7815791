"""Channels without sockets to the nodes of a cluster that a test drives."""

from pamqp import commands

from broker.channel.channel import Channel
from broker.protocol.constants import REPLY_NAMES
from broker.protocol.errors import AMQPError, ChannelError
from tests.channel.fakes import FakeLink
from tests.cluster_catalog.fakes import Front
from tests.protocol.pamqp_frames import unmarshal_all


class Link(FakeLink):
    """A connection that turns mistakes into closes, as the real one does."""

    def __init__(self, vhost):
        super().__init__(vhost=vhost)
        self.closed_with = None

    def resume(self, channel, action):
        try:
            action()
            while channel.backlog and not channel.suspended:
                channel.handle(*channel.backlog.popleft()[1:])
        except AMQPError as error:
            self.closed_with = error
            channel.release()


class CountingFront(Front):
    """A queue with messages and consumers, as its leader would report them."""

    messages = 0
    consumers = 0
    unreachable = False

    def counts(self, then):
        then(self.messages, self.consumers)

    def purge(self, then):
        count, self.messages = self.messages, 0
        then(count)

    def check_delete(self, *, if_unused, if_empty, then):
        if self.unreachable:
            then(ChannelError(506, "nobody leads it"))
        elif if_unused and self.consumers:
            then(ChannelError(406, "in use"))
        else:
            then(self.messages)

    def publish(self, messages, receipt):
        raise NotImplementedError


class Client:
    """A channel to one node."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.link = Link(cluster.nodes[number].vhost)
        self.channel = Channel(1, self.link, set())

    def send(self, method):
        if self.channel.suspended:
            self.channel.backlog.append((1, method.index, [method.marshal()]))
            return
        try:
            self.channel.handle(method.index, [method.marshal()])
        except AMQPError as error:
            error.method = error.method or method.index
            self.link.closed_with = error
            self.channel.release()

    def ask(self, method):
        """What is answered, or the code of the error that it was."""
        self.send(method)
        self.cluster.settle(12)
        if self.link.closed_with is not None:
            assert self.link.closed_with.method == method.index
            assert self.link.closed_with.code in REPLY_NAMES
            return self.link.closed_with.code
        answers = unmarshal_all(self.link.outbox.take())
        return answers[-1][1] if answers else None

    def declare(self, name, **options):
        return self.ask(commands.Queue.Declare(queue=name, **options))
