"""pika: messages for later, retries with growing pauses, and a queue for what never works.

Run it with `python examples/pika_delays.py` while the broker runs (`make run`). It needs pika.
"""

import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")

MAIL, DEAD = "examples.mail", "examples.mail.dead"

# A failed mail is tried again after 0.2 s, then after 0.4 s; the third failure is the last.
ARGUMENTS = {
    "x-retry-delay": 200,
    "x-retry-backoff": "exponential",
    "x-delivery-limit": 2,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": DEAD,
}


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        for queue in (MAIL, DEAD):
            channel.queue_delete(queue)  # should an earlier run have left something
        channel.queue_declare(DEAD, durable=True)
        channel.queue_declare(MAIL, durable=True, arguments=ARGUMENTS)
        channel.confirm_delivery()
        schedule(channel)
        retry(channel)
        for queue in (MAIL, DEAD):
            channel.queue_delete(queue)


def schedule(channel) -> None:
    """The header x-delay holds a message back, in milliseconds, on disk, up to thirty days."""
    channel.basic_publish("", MAIL, b"welcome")
    later = pika.BasicProperties(headers={"x-delay": 500})
    started = time.monotonic()
    channel.basic_publish("", MAIL, b"how do you like it?", later)  # confirmed at once
    for _ in range(2):
        method, _, body = next(channel.consume(MAIL))
        channel.basic_ack(method.delivery_tag)
        print("sent:", body.decode())
    assert time.monotonic() - started >= 0.5


def retry(channel) -> None:
    """A consumer only says that it failed; when to try again, and when to stop, the queue knows."""
    channel.basic_publish("", MAIL, b"to nobody@nowhere")
    for _ in range(3):
        method, properties, body = next(channel.consume(MAIL))
        tries = 1 + (properties.headers or {}).get("x-delivery-count", 0)
        print(f"try {tries}: {body.decode()} failed")
        channel.basic_nack(method.delivery_tag, requeue=True)
    channel.cancel()
    method, properties, body = next(channel.consume(DEAD))
    death = properties.headers["x-death"][0]
    print(f"given up: {body.decode()} ({death['reason']} in queue {death['queue']})")
    channel.basic_ack(method.delivery_tag)
    channel.cancel()


if __name__ == "__main__":
    main()
