"""Celery: tasks with retries, countdowns, chains and results, on the broker alone.

Run it while the broker runs (`make run`). It needs Celery.

    celery --workdir examples -A celery_tasks worker     # in one terminal, until Ctrl-C
    python examples/celery_tasks.py                      # in another
"""

import os

from celery import Celery, chain

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")

# Results come back over the broker too (rpc://), so nothing else has to run.
app = Celery("celery_tasks", broker=URL, backend="rpc://")
app.conf.task_default_queue = "examples.tasks"
app.conf.task_acks_late = True  # a task whose worker dies goes to another one
app.conf.worker_prefetch_multiplier = 1


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True, max_retries=3)
def flaky(self, succeed_on_attempt: int) -> str:
    attempt = self.request.retries + 1
    if attempt < succeed_on_attempt:
        raise self.retry(countdown=0.2)
    return f"succeeded on attempt {attempt}"


def main() -> None:
    print("2 + 3 =", add.delay(2, 3).get(timeout=60))
    print("(1 + 2) + 10 =", chain(add.s(1, 2), add.s(10))().get(timeout=60))
    print("flaky:", flaky.delay(3).get(timeout=60))
    print("later:", add.apply_async((1, 1), countdown=1).get(timeout=60))


if __name__ == "__main__":
    main()
