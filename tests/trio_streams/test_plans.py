"""Plans do the same whoever runs them, and pauses are kept by the clock of Trio."""

import random

import pytest
import trio

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Answer, Operation, Refused, Status
from clients.amqp_promise import Promise
from clients.backoff import Backoff
from clients.stream_address import Address
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_outbox import Outbox
from clients.stream_plans import Again, Ask, Call, asked, run, run_async
from clients.trio_stream_connection import StreamLine
from clients.trio_stream_link import Came
from clients.trio_stream_producer import producing

QUESTION = wire.Metadata(("s",))
LOST = ConnectionLostError("cut")
NOBODY = RefusedError(Refused(Status.UNAVAILABLE, "no leader"))
REFUSED = RefusedError(Refused(Status.STREAM_NOT_FOUND, "no stream"))
ANSWER = wire.MetadataAnswer(())


def script(*outcomes):
    """Carries out each request as told, and keeps the pauses."""
    left, pauses = list(outcomes), []

    def carry_out(step):
        if isinstance(step, Again):
            pauses.append((step.attempt, step.error))
            return None
        assert step == Ask(QUESTION, wire.MetadataAnswer)
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return carry_out, pauses


async def both(plan_of, *outcomes):
    """Run it in both ways: what each gave or raised, and the pauses."""
    carry_out, pauses = script(*outcomes)
    try:
        one = run(plan_of(), carry_out)
    except RefusedError as error:
        one = error
    carry_out_too, pauses_too = script(*outcomes)

    async def carry_out_async(step):
        await trio.lowlevel.checkpoint()
        return carry_out_too(step)

    try:
        other = await run_async(plan_of(), carry_out_async)
    except RefusedError as error:
        other = error
    assert (one, pauses) == (other, pauses_too)
    return one, pauses


@pytest.mark.parametrize(
    ("outcomes", "result", "pauses"),
    [
        ([ANSWER], ANSWER, []),
        ([LOST, NOBODY, ANSWER], ANSWER, [(0, LOST), (1, NOBODY)]),
        ([LOST, REFUSED], REFUSED, [(0, LOST)]),
    ],
    ids=["answered", "answered at last", "refused"],
)
async def test_a_question_is_asked_until_it_is_answered(outcomes, result, pauses):
    found = await both(lambda: asked(QUESTION, wire.MetadataAnswer), *outcomes)
    assert found == (result, pauses)


async def test_what_a_call_raises_is_raised_in_the_plan():
    def plan():
        try:
            yield Call(int, ("no number",))
        except ValueError:
            return (yield Call(int, ("7",)))

    def carry_out(step):
        return step.function(*step.arguments)

    async def carry_out_async(step):
        return carry_out(step)

    assert run(plan(), carry_out) == await run_async(plan(), carry_out_async) == 7


async def test_a_plan_that_is_cancelled_ends_where_it_is():
    ended = []

    def plan():
        try:
            yield Call(trio.sleep_forever)
        finally:
            ended.append(True)

    with trio.CancelScope() as scope:
        scope.cancel()
        await run_async(plan(), lambda step: step.function())
    assert ended == [True]


async def test_pauses_double_up_to_a_limit_and_end_after_so_many_attempts(autojump_clock):
    backoff = Backoff(first_s=1.0, most_s=8.0, attempts=6)
    async with trio.open_nursery() as nursery:
        line = StreamLine(
            Address.of_url("amqp://"), nursery, name="", backoff=backoff, timeout_s=1.0
        )
        for attempt, longest in enumerate([1, 2, 4, 8, 8, 8]):
            before = trio.current_time()
            await line.carry_out(Again(attempt, LOST))
            assert longest / 2 <= trio.current_time() - before <= longest
        with pytest.raises(ConnectionLostError):
            await line.carry_out(Again(6, LOST))


class FakeLine:
    """A line whose link loses some of what it is sent, and answers the rest when it is told to."""

    def __init__(self, *, loses=0):
        self.sent = []
        self._loses = loses

    async def run(self, plan):
        async def carry_out(step):
            if isinstance(step, Ask):
                return wire.ProducerAllocated(1, 0)
            assert isinstance(step, Again)
            return await trio.sleep(2**step.attempt)

        return await run_async(plan, carry_out)

    async def open(self):
        return self

    def send(self, message):
        promise = Promise()
        self.sent.append((trio.current_time(), message, promise))
        if len(self.sent) <= self._loses:
            promise.fail(LOST)
        return promise

    def answer(self, offset):
        _, _, promise = self.sent[-1]
        body = b"".join(wire.encode_body(wire.Appended(duplicate=False, offset=offset)))
        answer = Answer(1, Operation.APPEND, Status.OK, memoryview(body))
        promise.resolve(Came(answer, None))


def producer_on(line, **options):
    outbox = Outbox("s", 1, idempotent=True)
    given = {"name": "", "linger_s": 5.0, "window_bytes": 1000, **options}
    return producing(line, outbox, **given)


async def test_a_batch_waits_for_more_as_long_as_it_may_and_no_longer(autojump_clock):
    line = FakeLine()
    async with producer_on(line) as producer:
        start = trio.current_time()
        await producer.send(b"a")
        await trio.sleep(4)
        await producer.send(b"b")
        assert line.sent == []
        await trio.sleep(2)
        [(at, _, _)] = line.sent
        assert at - start == 5.0
        line.answer(0)
        await producer.send(b"c")
        await trio.sleep(1)
        assert len(line.sent) == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.flush)  # does not wait for more
            await trio.testing.wait_all_tasks_blocked()
            assert len(line.sent) == 2
            assert trio.current_time() - start == 7.0
            line.answer(2)
    assert producer.confirmed == 3


async def test_what_is_lost_goes_again_after_pauses_that_grow(autojump_clock):
    line = FakeLine(loses=3)
    async with producer_on(line) as producer:
        start = trio.current_time()
        await producer.send(b"a")
        await trio.sleep(100)
        line.answer(0)
    assert [at - start for at, _, _ in line.sent] == [5, 5 + 1, 5 + 1 + 2, 5 + 1 + 2 + 4]
    assert len({bytes(message.chunk) for _, message, _ in line.sent}) == 1
    assert producer.confirmed == 1


def test_a_backoff_spreads_its_pauses():
    chance = random.Random(7)
    pauses = {Backoff(first_s=1.0).pause_s(3, chance) for _ in range(50)}
    assert len(pauses) == 50
    assert all(4.0 <= pause <= 8.0 for pause in pauses)
