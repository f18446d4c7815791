"""Celery's delayed tasks when the broker is killed: held by a worker, or left to the broker."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import celery_app as tasks
import kombu.pools
import pika
import pytest
from celery_worker import DEADLINE_S, Worker
from tcp_proxy import CuttableProxy

from tests.support.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from celery import Celery
    from pika.adapters.blocking_connection import BlockingChannel

pytestmark = pytest.mark.leveret_only

DELAY_S = 6  # as a rule the broker is back by then; nothing depends on it


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker")
    yield broker
    broker.kill()


@pytest.fixture
def own_proxy(own_broker: BrokerProcess) -> Iterator[CuttableProxy]:
    """A way to the broker that stays the same when its port does not."""
    proxy = CuttableProxy((own_broker.host, own_broker.amqp_port))
    yield proxy
    proxy.close()


@pytest.fixture
def app(own_proxy: CuttableProxy) -> Iterator[Celery]:
    prefix = f"celery-{uuid.uuid4().hex[:8]}"
    url = f"amqp://guest:guest@127.0.0.1:{own_proxy.port}//"
    with tasks.create_native_app(url, prefix) as app:
        app.set_current()
        yield app
        kombu.pools.reset()


@pytest.fixture
def worker(app: Celery, tmp_path: Path) -> Iterator[Worker]:
    url, log = app.conf.broker_url, tmp_path / "worker.log"
    flags = ("-c2", "--without-gossip", "--without-mingle")
    worker = Worker(url, app.main, "delayed", "native,held", log, *flags, kind="native")
    try:
        worker.wait_until_it_answers(app)
        yield worker
    finally:
        worker.stop()


def wait_until_held(app: Celery, worker: Worker, count: int, channel: BlockingChannel) -> None:
    """Until so many tasks wait in the worker for their time, or it is over already."""
    deadline = time.monotonic() + DEADLINE_S
    while not channel.queue_declare(reports_of(app), passive=True).method.message_count:
        found = app.control.inspect(destination=[worker.node], timeout=1).scheduled() or {}
        if len(found.get(worker.node, [])) >= count:
            return
        assert time.monotonic() < deadline, worker.log.read_text()


def reports_of(app: Celery) -> str:
    return f"{app.main}.reports"


def collect(broker: BrokerProcess, queue: str, labels: set[str]) -> list[tuple[str, float]]:
    """Labels and times that tasks report, until each label has come."""
    reported: list[tuple[str, float]] = []
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url())) as connection:
        messages = connection.channel().consume(queue, inactivity_timeout=DEADLINE_S)
        for method, _, body in messages:
            assert method is not None, f"only {reported} came"
            reported.append(tuple(json.loads(body)))
            if {label for label, _ in reported} == labels:
                return reported
    raise AssertionError("the connection ended")


def test_tasks_with_a_countdown_or_an_eta_survive_a_kill_of_the_broker(
    own_broker: BrokerProcess, own_proxy: CuttableProxy, app: Celery, worker: Worker, tmp_path: Path
) -> None:
    reports = reports_of(app)
    due_s = {}
    with pika.BlockingConnection(pika.URLParameters(own_broker.amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare(reports, durable=True)
        channel.queue_declare("celery_delayed_27", passive=True)  # the worker made that
        for queue in ("native", "held"):
            for how in ("countdown", "eta"):
                label = f"{queue} {how}"
                due_s[label] = time.time() + DELAY_S
                eta = datetime.now(UTC) + timedelta(seconds=DELAY_S)
                when = {"countdown": DELAY_S} if how == "countdown" else {"eta": eta}
                tasks.stamp.apply_async((reports, label), queue=f"{app.main}.{queue}", **when)
        wait_until_held(app, worker, 2, channel)
    own_broker.kill()
    own_proxy.cut()
    broker = BrokerProcess(tmp_path / "broker")
    try:
        own_proxy.lead_to((broker.host, broker.amqp_port))
        for label, ran_s in collect(broker, reports, set(due_s)):
            assert ran_s >= due_s[label] - 0.05, label
        broker.assert_sound()
    finally:
        worker.stop()
        broker.stop()
