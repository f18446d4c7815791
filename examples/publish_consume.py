"""Publish with confirms, consume with acks, using pika.

pip install pika; start the broker with `make run`; then: python examples/publish_consume.py
"""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare("greetings", durable=True)

        # With confirms on, basic_publish returns only when the broker has taken the message,
        # and mandatory makes it raise UnroutableError if no queue would get it.
        channel.confirm_delivery()
        for name in ("Ada", "Grace", "Barbara"):
            channel.basic_publish("", "greetings", f"Hello, {name}".encode(), mandatory=True)
        print("published 3, all confirmed")

        channel.basic_qos(prefetch_count=10)
        consumer = channel.consume("greetings", inactivity_timeout=1)
        for method, _properties, body in consumer:
            if method is None:
                break  # Nothing came for a second: the queue is empty.
            print("received", body.decode())
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.queue_delete("greetings")


if __name__ == "__main__":
    main()
