"""Celery: real worker processes, results over rpc://, remote control, lost workers."""

from __future__ import annotations

import contextlib
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import celery_app as tasks
import kombu.pools
import pika
import pytest
from celery import Celery, chain, group
from celery.exceptions import TaskRevokedError
from celery_worker import DEADLINE_S, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from pika.adapters.blocking_connection import BlockingChannel
    from tcp_proxy import CuttableProxy

FreshName = Callable[[str], str]
StartWorker = Callable[..., "Worker"]


@pytest.fixture(scope="module")
def prefix(amqp_url: str) -> Iterator[str]:
    """What the names of this run start with; queues and exchanges are deleted afterwards."""
    prefix = f"clients.celery.{uuid.uuid4().hex[:8]}"
    yield prefix
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        for name in tasks.QUEUES:
            channel.queue_delete(f"{prefix}.{name}")
            channel.exchange_delete(f"{prefix}.{name}")
        for name in ("broadcast", "events", "pidbox"):
            channel.exchange_delete(f"{prefix}.{name}")
        channel.exchange_delete(f"reply.{prefix}.pidbox")


@pytest.fixture(scope="module")
def app(amqp_url: str, prefix: str) -> Iterator[Celery]:
    with tasks.create_app(amqp_url, prefix) as app:
        app.set_current()
        yield app
        results = app.backend.result_consumer
        if results._consumer is not None:
            results.stop()
        kombu.pools.reset()


@pytest.fixture(scope="module")
def worker(
    amqp_url: str, prefix: str, app: Celery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """The worker most tests share: four threads, gossip, mingle and events on."""
    log = tmp_path_factory.mktemp("celery") / "shared.log"
    worker = Worker(amqp_url, prefix, "shared", "default,broadcast", log, "-c4", "-E")
    try:
        worker.wait_until_it_answers(app)
        yield worker
    finally:
        worker.stop()


@pytest.fixture
def start_worker(amqp_url: str, prefix: str, app: Celery, tmp_path: Path) -> Iterator[StartWorker]:
    """Start further workers that end with the test."""
    started: list[Worker] = []

    def start(node: str, queues: str, *flags: str, url: str = amqp_url) -> Worker:
        quiet = ("--without-gossip", "--without-mingle", *flags)
        started.append(Worker(url, prefix, node, queues, tmp_path / f"{node}.log", *quiet))
        started[-1].wait_until_it_answers(app)
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


@pytest.fixture
def reports(app: Celery, fresh_name: FreshName) -> Iterator[Callable]:
    """A queue that tasks report to; call it for the next report, its ``name`` is its name."""
    with app.connection_for_read() as connection:
        name = fresh_name("reports")
        with connection.SimpleQueue(name) as simple:

            def next_report() -> object:
                message = simple.get(timeout=DEADLINE_S)
                message.ack()
                return message.payload

            next_report.name = name
            yield next_report


def queue_counts(channel: BlockingChannel, queue: str) -> tuple[int, int]:
    declared = channel.queue_declare(queue, passive=True).method
    return declared.message_count, declared.consumer_count


def test_two_hundred_tasks_return_their_results(worker: Worker) -> None:
    results = [tasks.add.delay(number, number) for number in range(200)]
    assert [result.get(timeout=DEADLINE_S) for result in results] == [2 * n for n in range(200)]


def test_groups_and_chains_return_their_results(worker: Worker) -> None:
    grouped = group(tasks.add.s(number, 1) for number in range(10))()
    assert grouped.get(timeout=DEADLINE_S) == list(range(1, 11))
    chained = chain(tasks.add.s(1, 2), tasks.add.s(3), tasks.add.s(4))()
    assert chained.get(timeout=DEADLINE_S) == 10


def test_an_exception_in_a_task_is_raised_by_its_result(worker: Worker) -> None:
    with pytest.raises(ValueError, match="boom"):
        tasks.boom.delay().get(timeout=DEADLINE_S)


@pytest.mark.parametrize("task", [tasks.retried_by_itself, tasks.retried_by_hand])
def test_a_failing_task_is_retried_until_it_succeeds(worker: Worker, task) -> None:
    results = [task.delay(fail_times) for fail_times in (0, 1, 2, 3)]
    assert [result.get(timeout=DEADLINE_S) for result in results] == [0, 1, 2, 3]


def test_a_task_that_keeps_failing_gives_up_after_its_last_retry(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="not yet"):
        tasks.retried_by_hand.delay(99).get(timeout=DEADLINE_S)


def test_more_tasks_with_a_countdown_than_the_prefetch_all_run(worker: Worker) -> None:
    results = [tasks.add.apply_async((number, 1), countdown=1) for number in range(20)]
    assert [result.get(timeout=DEADLINE_S) for result in results] == list(range(1, 21))


def test_tasks_run_while_more_eta_tasks_than_the_prefetch_wait_and_none_is_lost(
    app: Celery,
    prefix: str,
    start_worker: StartWorker,
    pika_channel: BlockingChannel,
    eventually: Callable,
) -> None:
    queue = f"{prefix}.eta"
    worker = start_worker("eta", "eta", "-c2")
    for number in range(10):
        tasks.add.apply_async((number, 1), queue=queue, countdown=3600)
    results = [tasks.add.apply_async((number, 1), queue=queue) for number in range(5)]
    assert [result.get(timeout=DEADLINE_S) for result in results] == [1, 2, 3, 4, 5]
    scheduled = app.control.inspect(destination=[worker.node], timeout=5).scheduled()
    assert len(scheduled[worker.node]) == 10
    worker.process.kill()
    eventually(
        lambda: queue_counts(pika_channel, queue) == (10, 0), "the waiting tasks to be requeued"
    )


def test_a_task_of_a_killed_worker_is_redelivered_to_another(
    app: Celery, prefix: str, worker: Worker, start_worker: StartWorker, reports: Callable
) -> None:
    queue = f"{prefix}.doomed"
    doomed = start_worker("doomed", "doomed", "-c1")
    result = tasks.hang_unless_redelivered.apply_async((reports.name,), queue=queue)
    assert reports() == doomed.node
    app.control.add_consumer(queue, destination=[worker.node], reply=True, timeout=5)
    doomed.process.send_signal(signal.SIGKILL)
    assert result.get(timeout=DEADLINE_S) == worker.node
    app.control.cancel_consumer(queue, destination=[worker.node], reply=True, timeout=5)


def test_a_task_that_hangs_for_longer_than_the_visibility_timeout_is_run_again(
    prefix: str, start_worker: StartWorker, reports: Callable
) -> None:
    worker = start_worker("stuck", "leased", "-c2")
    result = tasks.hang_unless_redelivered.apply_async((reports.name,), queue=f"{prefix}.leased")
    assert reports() == worker.node
    assert result.get(timeout=DEADLINE_S) == worker.node
    worker.process.kill()  # it would wait for the one that hangs


def test_tasks_of_higher_priority_run_first_and_the_worker_obeys_a_remote_shutdown(
    app: Celery, prefix: str, start_worker: StartWorker, reports: Callable
) -> None:
    priorities = [0, 5, 9, 3, 5, 0, 9, 7]
    for number, priority in enumerate(priorities):
        tasks.note.apply_async(
            (reports.name, [priority, number]), queue=f"{prefix}.priorities", priority=priority
        )
    worker = start_worker("single", "priorities", "-c1")
    ran = [reports() for _ in priorities]
    in_order = sorted(zip(priorities, range(8), strict=True), key=lambda pair: (-pair[0], pair[1]))
    assert ran == [[worker.node, list(pair)] for pair in in_order]
    app.control.shutdown(destination=[worker.node])
    assert worker.process.wait(DEADLINE_S) == 0


def test_a_broadcast_task_runs_on_every_worker(
    prefix: str, worker: Worker, start_worker: StartWorker, reports: Callable
) -> None:
    second = start_worker("second", "broadcast", "-c1")
    tasks.note.apply_async((reports.name, "to all"), queue=f"{prefix}.broadcast")
    assert sorted([reports(), reports()]) == sorted(
        [[worker.node, "to all"], [second.node, "to all"]]
    )


def test_a_worker_goes_on_after_its_connections_are_cut(
    prefix: str,
    start_worker: StartWorker,
    proxied_url: str,
    proxy: CuttableProxy,
) -> None:
    start_worker("fragile", "fragile", "-c1", url=proxied_url)
    before = tasks.add.apply_async((1, 1), queue=f"{prefix}.fragile")
    assert before.get(timeout=DEADLINE_S) == 2
    assert proxy.cut() >= 1
    after = tasks.add.apply_async((2, 2), queue=f"{prefix}.fragile")
    assert after.get(timeout=DEADLINE_S) == 4


def test_remote_control_tells_what_a_worker_is_doing(
    app: Celery, prefix: str, worker: Worker, reports: Callable, fresh_name: FreshName
) -> None:
    releases = fresh_name("releases")
    result = tasks.wait_for_release.delay(reports.name, releases)
    assert reports() == worker.node
    inspect = app.control.inspect(destination=[worker.node], timeout=5)
    [active] = inspect.active()[worker.node]
    assert active["id"] == result.id
    with app.connection_for_write() as connection, connection.SimpleQueue(releases) as gate:
        gate.put("go")
        assert result.get(timeout=DEADLINE_S) == "released"
    stats = inspect.stats()[worker.node]
    assert stats["total"]["tests.wait_for_release"] == 1
    assert stats["pool"]["max-concurrency"] == 4
    assert f"{prefix}.default" in [queue["name"] for queue in inspect.active_queues()[worker.node]]
    assert app.control.ping(destination=[worker.node], timeout=5) == [{worker.node: {"ok": "pong"}}]


def test_a_worker_takes_up_and_leaves_a_queue_on_request(
    app: Celery,
    worker: Worker,
    fresh_name: FreshName,
    pika_channel: BlockingChannel,
    eventually: Callable,
) -> None:
    extra = fresh_name("extra")
    request = {"destination": [worker.node], "reply": True, "timeout": 5}
    [added] = app.control.add_consumer(extra, **request)
    assert "ok" in added[worker.node]
    assert tasks.add.apply_async((20, 22), queue=extra).get(timeout=DEADLINE_S) == 42
    [cancelled] = app.control.cancel_consumer(extra, **request)
    assert "ok" in cancelled[worker.node]
    eventually(lambda: queue_counts(pika_channel, extra) == (0, 0), "the consumer to be gone")


def test_rate_limits_and_revocations_reach_the_worker(app: Celery, worker: Worker) -> None:
    request = {"destination": [worker.node], "reply": True, "timeout": 5}
    for limit in ("100/s", "0"):
        [answer] = app.control.rate_limit("tests.add", limit, **request)
        assert "ok" in answer[worker.node]
        assert tasks.add.delay(1, 1).get(timeout=DEADLINE_S) == 2
    revoked = str(uuid.uuid4())
    [answer] = app.control.revoke(revoked, **request)
    assert "ok" in answer[worker.node]
    with pytest.raises(TaskRevokedError):
        tasks.add.apply_async((1, 1), task_id=revoked).get(timeout=DEADLINE_S)


def test_the_events_of_a_task_reach_a_monitor(app: Celery, worker: Worker) -> None:
    seen: list[tuple[str, str]] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection,
            handlers={"*": lambda event: seen.append((event["type"], event.get("uuid")))},
        )
        with receiver.consumer_context(wakeup=False) as (listening, _, _):
            result = tasks.add.delay(1, 2)
            assert result.get(timeout=DEADLINE_S) == 3
            deadline = time.monotonic() + DEADLINE_S
            while ("task-succeeded", result.id) not in seen:
                assert time.monotonic() < deadline, seen
                with contextlib.suppress(TimeoutError):
                    listening.drain_events(timeout=1)
    own = [kind for kind, task_id in seen if task_id == result.id]
    assert own == ["task-received", "task-started", "task-succeeded"]
