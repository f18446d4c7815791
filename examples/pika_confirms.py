"""pika: publish with confirms, consume with acks.

Run it with `python examples/pika_confirms.py` while the broker runs (`make run`). It needs pika.
"""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
QUEUE = "examples.greetings"
NAMES = ("Ada", "Grace", "Barbara")


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_delete(QUEUE)  # should an earlier run have left something
        channel.queue_declare(QUEUE, durable=True)

        # With confirms on, basic_publish returns only when the broker has taken the message,
        # and mandatory makes it raise UnroutableError if no queue would get it.
        channel.confirm_delivery()
        for name in NAMES:
            channel.basic_publish("", QUEUE, f"Hello, {name}".encode(), mandatory=True)
        print(f"published {len(NAMES)}, all confirmed")

        channel.basic_qos(prefetch_count=10)
        messages = channel.consume(QUEUE)
        for _ in NAMES:
            method, _properties, body = next(messages)
            print("received", body.decode())
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.queue_delete(QUEUE)


if __name__ == "__main__":
    main()
