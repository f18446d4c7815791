"""A whole durable queue on a log in memory, through as many lives as a test wants."""

from queues.durable import DurableStore
from queues.options import QueueOptions
from queues.ordering import is_in_order
from queues.paged import HotBudget
from queues.queue import Queue
from tests.durability.fake_log import FakeDisk, FakeLog
from tests.queues.fakes import FakeContext


class QueueOnLog:
    """The queue, its log and its clock. Time goes on while it is down, but nothing happens."""

    def __init__(self, *, budget_bytes=1 << 30, **options):
        self.disk = FakeDisk()
        self.budget_bytes = budget_bytes
        self.options = QueueOptions(**options)
        self.context = FakeContext()
        self.restarts = 0
        self._open()

    def _open(self):
        now = self.context.now
        self.context = FakeContext()
        self.context.now = now
        self.log = FakeLog(self.disk)
        self.queue = Queue(
            "q",
            self.context,
            self.options,
            arguments={},
            durable=True,
            auto_delete=False,
            owner=None,
        )
        self.store = self.queue.keep_in(self._make_store)
        self.log.machine = self.store
        needed = self.store.recover(
            self.disk.checkpoint,
            self.disk.above_checkpoint(),
            stopped_cleanly=self.disk.stopped_cleanly,
        )
        assert set(needed) <= self.disk.entries.keys(), "an entry is needed that was given away"
        self.disk.stopped_cleanly = False
        self.store.start()

    def _make_store(self, hot):
        return DurableStore(
            self.log,
            self.queue,
            HotBudget(self.budget_bytes),
            self.context.now_ms,
            hot,
            in_order=is_in_order(self.options),
            grouped=self.options.message_groups,
        )

    def configure(self, **options):
        self.options = QueueOptions(**options)
        self.queue.configure(self.options)

    def advance(self, ms):
        self.context.advance(ms)

    def settle_down(self):
        """All that was said becomes durable, and all that was asked for is read."""
        self.log.settle_down()
        while self.log.reads:
            self.log.finish_read()
            self.log.settle_down()

    def crash(self, *, kept=0, brought_back=(), down_ms=0):
        """So many of the open writes reached the disk all the same."""
        self.log.crash(kept, brought_back)
        self._come_back(down_ms)

    def stop(self, *, down_ms=0):
        """In good order. Consumers must have given everything back."""
        self.log.settle_down()
        self.queue.stop()
        self.log.settle_down()
        self.log.crash(0, ())
        self.disk.stopped_cleanly = True
        self._come_back(down_ms)

    def _come_back(self, down_ms):
        self.context.now += down_ms
        self.restarts += 1
        self._open()
