"""A dead letter for a damaged queue waits in the queue its message died in, through restarts."""

import urllib.request

from tests.durability.life import drain
from tests.durability.test_damage import LogFile, fill
from tests.support.frames import Queue
from tests.support.waiting import eventually

WAIT_S = 120.0  # some tries: the pauses between them grow up to 30 s


def waiting(life) -> int:
    with urllib.request.urlopen(life.process.http_url("/metrics")) as answer:
        lines = answer.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith("rabbitmq_queue_messages_dlx ")]
    return int(float(line.split()[1]))


def reject_one(channel, queue):
    content = channel.get(queue)
    channel.reject(content.delivery_tag, requeue=False)
    return content


def test_a_letter_waits_for_another_queue_than_the_damaged_one(life):
    publisher = fill(life, "hurt")
    channel = publisher.channel
    channel.declare_exchange("graves", "fanout", durable=True)
    channel.bind("hurt", "graves")
    channel.declare_queue("work", durable=True, arguments={"x-dead-letter-exchange": "graves"})
    publisher.publish("", "work", b"kept")
    publisher.barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.find(b"<hurt 4>") + 6)
    life.start()

    assert reject_one(life.channel(), "work").body == b"kept"
    eventually(lambda: waiting(life) == 1, "it waits")
    assert "dead_letters_wait" in life.process.log_text()
    life.restart("kill", "stop")
    channel = life.channel()
    again = reject_one(channel, "work")
    assert (again.body, again.redelivered) == (b"kept", True)
    eventually(lambda: waiting(life) == 1, "it waits again")

    channel.declare_queue("fresh", durable=True)
    channel.bind("fresh", "graves")
    channel.rpc(Queue.Delete(queue="hurt"))
    channel.consume("fresh", no_ack=True)
    letter = channel.delivery(timeout=WAIT_S)
    assert letter.body == b"kept"
    assert letter.headers["x-death"][0]["reason"] == "rejected"
    eventually(lambda: waiting(life) == 0, "it is settled", within_s=WAIT_S)
    life.confirming().barrier()
    life.restart("kill")
    assert (drain(life.channel(), "work"), drain(life.channel(), "fresh")) == ([], [])
