"""What a partition stands on in tests: threads that run when told to, producers, receipts."""

from collections import deque

from broker.protocol.chunk import ABORT_MARK, COMMIT_MARK, TRANSACTIONAL, Header
from queues.stream.verdict import NEW, Ruling, Verdict


class ByHand:
    """Off the loop means later: each job is done when somebody says so."""

    def __init__(self):
        self.jobs = deque()

    def __call__(self, work, then):
        self.jobs.append((work, then))

    def run(self, count=1 << 30):
        """Do so many of the jobs, in order, all there are by default; how many were done."""
        done = 0
        while self.jobs and done < count:
            work, then = self.jobs.popleft()
            then(work())
            done += 1
        return done

    def work_without_telling(self):
        """The thread does the first job, and the loop never hears of it."""
        work, _ = self.jobs.popleft()
        work()


class Holder:
    def __init__(self):
        self.advances = 0
        self.reasons = []

    def advanced(self):
        self.advances += 1

    def damage(self, reason):
        self.reasons.append(reason)


class Receipt:
    """Remembers what it was told."""

    def __init__(self, on_appended=lambda verdict, first: None):
        self._on_appended = on_appended
        self.verdict = self.first_offset = None

    def appended(self, verdict, first_offset):
        assert self.verdict is None, "told twice"
        self.verdict, self.first_offset = verdict, first_offset
        self._on_appended(verdict, first_offset)


class ProducerTable:
    """The least that does it: the next sequence of each producer, and open and aborted writes."""

    def __init__(self):
        self.next = {}  # producer id → epoch and next sequence
        self.open = {}  # producer id → ranges of offsets that wait for a mark
        self.aborted = []

    def apply(self, header: Header, base_offset, at_ms):
        producer = header.producer
        if producer is None:
            return NEW
        epoch, expected = self.next.get(producer.id, (producer.epoch, 0))
        if producer.epoch < epoch:
            return Ruling(Verdict.FENCED)
        if header.flags & (COMMIT_MARK | ABORT_MARK):
            ranges = self.open.pop(producer.id, [])
            if header.flags & ABORT_MARK:
                self.aborted = sorted(self.aborted + ranges)
            return NEW
        expected = expected if producer.epoch == epoch else 0
        if producer.sequence != expected:
            known = producer.sequence < expected
            return Ruling(Verdict.DUPLICATE if known else Verdict.OUT_OF_ORDER)
        self.next[producer.id] = (producer.epoch, expected + header.records)
        if header.flags & TRANSACTIONAL:
            ranges = self.open.setdefault(producer.id, [])
            ranges.append((base_offset, base_offset + header.span))
        return NEW

    def first_unstable(self):
        return min([first for ranges in self.open.values() for first, _ in ranges], default=None)

    def hidden(self, first, end):
        return [r for r in self.aborted if r[0] < end and first < r[1]]

    def forget_before(self, offset):
        self.aborted = [r for r in self.aborted if r[1] > offset]

    def checkpoint(self):
        return repr((self.next, self.open, self.aborted)).encode()

    def restore(self, state):
        self.next, self.open, self.aborted = eval(state)
