"""The Celery application of the tests; run as a program it is a worker of that application."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from celery import Celery, current_app, shared_task
from kombu import Exchange, Queue
from kombu.common import Broadcast

if TYPE_CHECKING:
    from celery.app.task import Task

QUEUES = ("default", "priorities", "eta", "doomed", "fragile", "leased")
VISIBILITY_TIMEOUT_MS = 1500


def create_app(url: str, prefix: str) -> Celery:
    """Make an application whose queues and exchanges all start with ``prefix``."""
    app = Celery(prefix, broker=url, backend="rpc://")
    queues = [
        Queue(
            f"{prefix}.{name}",
            Exchange(f"{prefix}.{name}", type="direct"),
            routing_key=f"{prefix}.{name}",
            max_priority=9 if name == "priorities" else None,
            queue_arguments={"x-visibility-timeout": VISIBILITY_TIMEOUT_MS}
            if name == "leased"
            else None,
        )
        for name in QUEUES
    ]
    app.conf.update(
        task_queues=[*queues, Broadcast(f"{prefix}.broadcast")],
        task_default_queue=f"{prefix}.default",
        task_default_exchange=f"{prefix}.default",
        task_default_routing_key=f"{prefix}.default",
        control_exchange=prefix,
        event_exchange=f"{prefix}.events",
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        result_expires=300,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
    )
    return app


def create_native_app(url: str, prefix: str) -> Celery:
    """Make an application with a quorum queue behind a topic exchange beside a plain one.

    That is what Celery needs to leave delays to the broker: its native delayed delivery, which is
    made of quorum queues with a TTL, each of which dead-letters to the next.
    """
    app = create_app(url, prefix)
    native, held = f"{prefix}.native", f"{prefix}.held"
    app.conf.task_queues = [
        Queue(
            native,
            Exchange(native, type="topic"),
            routing_key=native,
            queue_arguments={"x-queue-type": "quorum"},
        ),
        Queue(held, Exchange(held, type="direct"), routing_key=held),
    ]
    app.conf.task_default_queue = held
    return app


def report(queue: str, value: object) -> None:
    """Tell the test something, past the result backend."""
    with current_app.producer_or_acquire() as producer:
        producer.publish(value, exchange="", routing_key=queue, serializer="json")


@shared_task(name="tests.add")
def add(x: int, y: int) -> int:
    return x + y


@shared_task(name="tests.boom")
def boom() -> None:
    raise ValueError("boom")


@shared_task(
    name="tests.retried_by_itself",
    bind=True,
    autoretry_for=(ConnectionError,),
    default_retry_delay=0,
    max_retries=5,
)
def retried_by_itself(self: Task, fail_times: int) -> int:
    if self.request.retries < fail_times:
        raise ConnectionError("not yet")
    return self.request.retries


@shared_task(name="tests.retried_by_hand", bind=True, max_retries=3)
def retried_by_hand(self: Task, fail_times: int) -> int:
    if self.request.retries < fail_times:
        raise self.retry(countdown=0.2, exc=RuntimeError("not yet"))
    return self.request.retries


@shared_task(name="tests.note", bind=True, ignore_result=True)
def note(self: Task, reports: str, label: object) -> None:
    report(reports, [self.request.hostname, label])


@shared_task(name="tests.stamp", ignore_result=True)
def stamp(reports: str, label: object) -> None:
    """Tell when it ran, however long it takes until the broker is there to be told."""
    now = time.time()
    policy = {"max_retries": 100, "interval_start": 0.2, "interval_step": 0, "interval_max": 0.2}
    with current_app.producer_or_acquire() as producer:
        producer.publish(
            [label, now],
            exchange="",
            routing_key=reports,
            serializer="json",
            retry=True,
            retry_policy=policy,
        )


@shared_task(name="tests.hang_unless_redelivered", bind=True)
def hang_unless_redelivered(self: Task, reports: str) -> str:
    if not self.request.delivery_info["redelivered"]:
        report(reports, self.request.hostname)
        threading.Event().wait()
    return self.request.hostname


@shared_task(name="tests.wait_for_release", bind=True)
def wait_for_release(self: Task, reports: str, releases: str) -> str:
    with current_app.pool.acquire() as connection, connection.SimpleQueue(releases) as gate:
        report(reports, self.request.hostname)
        gate.get(timeout=60).ack()
    return "released"


if __name__ == "__main__":
    _kind, _url, _prefix, *_worker_arguments = sys.argv[1:]
    _app = {"plain": create_app, "native": create_native_app}[_kind](_url, _prefix)
    _app.worker_main(["worker", *_worker_arguments])
