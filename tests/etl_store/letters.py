"""Dead letters as a job writes them, for tests without Spark."""

from spark.etl import dead_letters
from spark.etl.dead_letters import dlq_of


def headers_of(topic: str, offset: int, /, **changes: object) -> dict[str, object]:
    given: dict[str, object] = {
        dead_letters.JOB: "orders",
        dead_letters.TOPIC: topic,
        dead_letters.PARTITION: "0",
        dead_letters.OFFSET: str(offset),
        dead_letters.TIMESTAMP: "1700000000123",
        dead_letters.ERROR_TYPE: "DecodeError",
        dead_letters.ERROR: "no JSON",
        dead_letters.REPLAYS: "0",
    }
    named = {f"x-etl-{name.replace('_', '-')}": value for name, value in changes.items()}
    return {name: value for name, value in (given | named).items() if value is not None}


def bury(client, topic: str, offsets, /, *, own=None, **changes: object) -> None:
    """Records of these offsets become dead letters."""
    with client.producer(dlq_of(topic)) as producer:
        for offset in offsets:
            headers = {**(own or {}), **headers_of(topic, offset, **changes)}
            producer.send(b"raw %d" % offset, key=b"key %d" % offset, headers=headers)
