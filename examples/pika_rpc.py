"""pika: ask and answer over direct reply-to. No reply queue is declared or cleaned up.

Run it with `python examples/pika_rpc.py` while the broker runs (`make run`). It needs pika.
"""

import os
import threading
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
SQUARES = "examples.squares"
REPLY_TO = "amq.rabbitmq.reply-to"


def serve_squares(ready: threading.Event, count: int) -> None:
    """Answer `count` requests with the square of the number they hold."""
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare(SQUARES, auto_delete=True)
        ready.set()
        for method, asked, body in channel.consume(SQUARES):
            reply = pika.BasicProperties(correlation_id=asked.correlation_id)
            channel.basic_publish("", asked.reply_to, str(int(body) ** 2).encode(), reply)
            channel.basic_ack(method.delivery_tag)
            count -= 1
            if count == 0:
                break


def ask(numbers: list[int], timeout_s: float = 30.0) -> dict[int, int]:
    """Send every number at once and collect the answers in whatever order they come."""
    answers: dict[int, int] = {}

    def on_reply(_channel, _method, properties, body):
        answers[int(properties.correlation_id)] = int(body)

    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        # Replies need a consumer first: on the channel that asks, and with auto_ack.
        channel.basic_consume(REPLY_TO, on_reply, auto_ack=True)
        for number in numbers:
            properties = pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(number))
            channel.basic_publish("", SQUARES, str(number).encode(), properties)
        deadline = time.monotonic() + timeout_s
        while len(answers) < len(numbers):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{len(numbers) - len(answers)} answers are missing")
            connection.process_data_events(time_limit=left_s)
    return answers


def main() -> None:
    numbers = [3, 4, 12]
    ready = threading.Event()
    server = threading.Thread(target=serve_squares, args=(ready, len(numbers)))
    server.start()
    ready.wait()
    for number, square in sorted(ask(numbers).items()):
        print(f"{number} squared is {square}")
    server.join()


if __name__ == "__main__":
    main()
