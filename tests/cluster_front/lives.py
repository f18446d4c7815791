"""Random lives of a queue on three nodes: leaders change, links break, nodes and clients go."""

from random import Random

from tests.cluster_front.world import Client, World

# What may happen, and how often beside the others.
QUIET = {
    "publish": 10,
    "carry": 60,
    "commit": 12,
    "apply": 12,
    "work": 10,
    "ack": 10,
    "requeue": 2,
    "reject": 1,
    "consume": 2,
    "cancel": 1,
    "get": 1,
    "pause": 1,
    "resume": 2,
    "limit": 1,
    "time": 3,
}
ROUGH = QUIET | {"elect": 2, "cut": 1, "heal": 3, "crash": 0.3, "restart": 1, "close": 0.5}


class Life:
    """One of them. A seed gives the same life each time."""

    def __init__(self, seed, chances, **options):
        self.random = Random(seed)
        self.chances = chances
        self.world = World(**options)
        self.clients = {}
        self.gone = []  # clients of nodes that died
        self._bodies = 0
        for number in self.world.nodes:
            self.connect(number)
        self.world.elect(self.random.choice(self.world.members))

    def connect(self, number):
        node = self.world.nodes[number]
        limits = [self.random.choice((0, 0, 3)) for _ in range(2)]
        self.clients[number] = [Client(node, limit) for limit in limits]

    def run(self, steps):
        names, weights = list(self.chances), list(self.chances.values())
        for name in self.random.choices(names, weights, k=steps):
            getattr(self, name)()
            self.world.flush()

    def _node(self):
        return self.random.choice(list(self.world.nodes))

    def _client(self):
        return self.random.choice(self.clients[self._node()])

    # What happens

    def publish(self):
        count = self.random.choice((1, 1, 2, 5))
        self._bodies += count
        bodies = [b"%d" % n for n in range(self._bodies - count, self._bodies)]
        self.world.publish(self._node(), bodies)

    def carry(self):
        busy = self.world.net.busy()
        if busy:
            self.world.carry(self.random.choice(busy))

    def commit(self):
        self.world.group.commit()

    def apply(self):
        number = self._node()
        if number in self.world.members:
            self.world.group.apply(number)

    def work(self):
        if self.world.work:
            self.world.do_work()

    def _hand_back(self, how):
        client = self._client()
        tags = list(client.unacked)
        if tags:
            client.hand_back(self.random.sample(tags, self.random.randint(1, len(tags))), how)

    def ack(self):
        self._hand_back("ack")

    def requeue(self):
        self._hand_back("requeue")

    def reject(self):
        self._hand_back("reject")

    def consume(self):
        client = self._client()
        if len(client.consumers) < 3:
            client.consume(
                no_ack=self.random.random() < 0.2,
                prefetch=self.random.choice((0, 1, 3, 10)),
                priority=self.random.choice((0, 0, 1)),
                lease_ms=self.random.choice((None, None, 2000)),
            )

    def cancel(self):
        client = self._client()
        if client.consumers:
            client.cancel(self.random.choice(list(client.consumers.values())))

    def get(self):
        self._client().get(no_ack=self.random.random() < 0.3)

    def pause(self):
        self._client().paused = True

    def resume(self):
        self._client().resume()

    def limit(self):
        client = self._client()
        limit = self.random.choice((0, 1, 5))
        if not limit or limit >= client.credit.used:
            client.credit.limit = limit
            client.resume()

    def time(self):
        self.world.clock.advance(self.random.choice((1, 50, 300, 1500)))

    def elect(self):
        self.world.elect(self.random.choice(self.world.members), self.random.randint(0, 3))

    def cut(self):
        a, b = (
            self.random.sample(list(self.world.nodes), 2) if len(self.world.nodes) > 1 else (1, 1)
        )
        if a != b:
            self.world.cut(a, b)

    def heal(self):
        numbers = list(self.world.nodes)
        for a in numbers:
            for b in numbers:
                if a < b and self.random.random() < 0.5:
                    self.world.heal(a, b)

    def crash(self):
        if len(self.world.nodes) == 3:
            number = self._node()
            self.gone += self.clients.pop(number)
            self.world.crash(number)

    def restart(self):
        for number in (1, 2, 3):
            if number not in self.world.nodes:
                self.world.restart(number)
                self.connect(number)

    def close(self):
        number = self._node()
        self.clients[number].pop(0).close()
        self.clients[number].append(Client(self.world.nodes[number]))

    # The end

    def finish(self):
        """All is well again, and consumers take all there is."""
        world = self.world
        self.restart()
        for a in world.nodes:
            for b in world.nodes:
                if a < b:
                    world.heal(a, b)
        if world.group.leader not in world.group.leading:
            world.elect(1)
        world.settle_down(5000)
        for clients in self.clients.values():
            for client in clients:
                client.paused = False
                client.credit.limit = 0
                client.resume()
        reader = Client(world.nodes[2])
        reader.consume()
        idle = 0
        for _ in range(60):
            world.settle_down(500)
            busy = False
            for client in [reader, *[c for some in self.clients.values() for c in some]]:
                if client.unacked:
                    busy = True
                    client.hand_back(list(client.unacked), "ack")
            idle = 0 if busy or world.leader.replica.messages else idle + 1
            if idle > 3:
                break
        world.settle_down(1000)

    def check(self):
        world = self.world
        lost = world.confirmed - world.acked - world.rejected
        assert not lost, f"confirmed and lost: {sorted(lost)}"
        assert all(receipt.told == 1 for receipt in self._live_receipts()), "nobody was told"
        queue = world.leader.front.queue
        assert (world.leader.replica.messages, queue.ready, queue.unacked) == (0, 0, 0)
        for node in world.nodes.values():
            assert node.front.keeps == 0
            assert node.fronts.pending_bytes == 0
        desk = world.leader.fronts.desks[queue_uid(world)]
        for guest in desk._guests.values():
            for stand_in in guest.stand_ins.values():
                assert not stand_in.held
                assert not stand_in.gone, "kept though it holds nothing"
                assert stand_in.consumer.credit.used == 0
        for clients in self.clients.values():
            for client in clients:
                assert client.credit.used == 0
                assert client.credit.fetched == 0

    def _live_receipts(self):
        return [r for r in self.world.receipts if r.node in self.world.nodes.values()]


def queue_uid(world):
    return world.leader.front.uid
