"""Streams through restarts: offsets, order and what was confirmed stay, in log and segments."""

import threading
from collections import defaultdict
from zlib import crc32

import pytest

from tests.durability.life import Life
from tests.support.frames import Basic, Confirm, Queue
from tests.support.streams import STREAM, Publishing, bodies, offsets, partitions
from tests.support.waiting import eventually
from tests.support.wire import (
    ChannelClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    WireConnection,
)

ENDINGS = {
    "killed": ("kill",),
    "stopped and killed": ("stop", "kill"),
}
LOST = (OSError, ConnectionLostError, ConnectionClosedError, TimeoutError)
LARGE = 20_000  # bytes; a few hundred of them are moved to a segment at once
LONG_S = 120.0


def declare(life, name="s", **arguments):
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    life.channel().declare_queue(name, durable=True, arguments={**STREAM, **given})
    return name


def read(life, name, count, offset="first", **arguments):
    channel = life.channel()
    channel.qos(200)
    given = {f"x-stream-{key}": value for key, value in arguments.items()}
    channel.consume(name, arguments={"x-stream-offset": offset, **given})
    records = []
    for _ in range(count):
        records.append(channel.delivery(timeout=LONG_S))
        channel.ack(records[-1].delivery_tag)
    channel.conn.close()
    return records


def directories(life):
    return {path.name for path in (life.data_dir / "streams").glob("*")}


def segments(life):
    return sorted(life.data_dir.glob("streams/*/*.segment"))


def filled(life, but=()):
    """Bytes in segments, of all streams but those."""
    return sum(path.stat().st_size for path in segments(life) if path.parent.name not in but)


def publish(life, name, *payloads, **properties):
    Publishing(life.channel()).publish("", name, *payloads, **properties)


def fill_segment(life, name, count=400, others=()):
    """So much in one partition that it has to be moved; returns when some of it is in a segment.

    The files of streams in `others` may still be growing themselves.
    """
    before = filled(life, others)
    payloads = [b"%d " % number + bytes(LARGE) for number in range(count)]
    publish(life, name, *payloads, headers={"x-partition-key": "one"})
    eventually(lambda: filled(life, others) > before, "records to be in a segment", within_s=LONG_S)


@pytest.mark.parametrize("ending", ENDINGS)
def test_records_keep_their_offsets_and_their_order(life: Life, ending: str) -> None:
    stream = declare(life, partitions=3, max_age="7D")
    life.channel().bind(stream, "amq.topic", "#")
    publisher = Publishing(life.channel())
    for number in range(300):
        publisher.send("amq.topic", f"key{number % 20}", b"%d" % number, headers={"n": number})
    publisher.wait()
    before = read(life, stream, 300)
    life.restart(*ENDINGS[ending])
    again = life.channel().declare_queue(
        stream, durable=True, arguments={**STREAM, "x-partitions": 3, "x-max-age": "7D"}
    )
    assert again.message_count == 300
    after = read(life, stream, 300)
    for number in range(3):
        mine, theirs = (
            [r for r in some if partitions([r]) == [number]] for some in (before, after)
        )
        assert offsets(theirs) == list(range(len(theirs)))
        assert bodies(theirs) == bodies(mine)
        assert [r.headers for r in theirs] == [r.headers for r in mine]
    Publishing(life.channel()).publish("amq.topic", "key1", b"new")
    new = read(life, stream, 1, "last", partitions=[crc32(b"key1") % 3])
    assert bodies(new) == [b"new"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_records_in_segments_and_in_the_log_are_one_stream(life: Life, ending: str) -> None:
    stream = declare(life)
    fill_segment(life, stream)
    publish(life, stream, *[b"tail"] * 5)
    life.restart(*ENDINGS[ending])
    records = read(life, stream, 405)
    assert offsets(records) == list(range(405))
    assert bodies(records) == [b"%d " % n + bytes(LARGE) for n in range(400)] + [b"tail"] * 5
    publish(life, stream, b"behind")
    assert (bodies(read(life, stream, 1, 405))) == [b"behind"]


def test_a_deleted_stream_leaves_nothing_behind(life: Life) -> None:
    kept, gone = declare(life, "kept"), declare(life, "gone", partitions=2)
    fill_segment(life, kept)
    fill_segment(life, gone, others=directories(life))
    assert len(directories(life)) == 2
    life.channel().rpc(Queue.Delete(queue=gone))
    eventually(lambda: len(directories(life)) == 1, "its files to go", within_s=LONG_S)
    life.restart("kill")
    assert len(directories(life)) == 1
    assert len(read(life, kept, 400)) == 400
    with pytest.raises(ChannelClosedError, match="no queue"):
        life.channel().count(gone)


def test_what_belongs_to_no_stream_is_removed_at_a_start(life: Life) -> None:
    stream = declare(life)
    fill_segment(life, stream)
    life.stop()
    orphan = life.data_dir / "streams" / ("ab" * 16)
    orphan.mkdir()
    (orphan / "00000000000000000000-0.segment").write_bytes(b"left by a crash")
    life.start()
    assert not orphan.exists()
    assert len(read(life, stream, 400)) == 400


def test_a_stream_without_its_segments_refuses_and_says_why(life: Life) -> None:
    sound, hurt = declare(life, "sound"), declare(life, "hurt")
    publish(life, sound, b"x")
    for _ in range(2):  # when the second move begins, the log relies on the first
        fill_segment(life, hurt)
    life.stop()
    (path,) = segments(life)
    path.unlink()
    life.start()
    for method in (
        Basic.Consume(queue=hurt),
        Queue.Declare(queue=hurt, passive=True),
        Queue.Bind(queue=hurt, exchange="amq.fanout"),
    ):
        with pytest.raises(ChannelClosedError, match="damaged"):
            life.channel().rpc(method)
    channel = life.channel()
    channel.rpc(Confirm.Select())
    channel.publish("", hurt, b"refused")
    assert channel.expect(Basic.Nack).delivery_tag == 1
    assert bodies(read(life, sound, 1)) == [b"x"]
    life.channel().rpc(Queue.Delete(queue=hurt))
    declare(life, "hurt")
    publish(life, hurt, b"anew")
    assert offsets(read(life, hurt, 1)) == [0]


def test_a_reader_of_a_damaged_chunk_is_told_and_may_go_on_behind_it(life: Life) -> None:
    stream = declare(life)
    fill_segment(life, stream)
    life.restart("stop")
    (path,) = segments(life)
    with path.open("r+b") as file:
        data = file.read()
        place = data.index(b"100 " + bytes(100)) + 50
        file.seek(place)
        file.write(b"!")
    channel = life.channel()
    channel.qos(1000)
    tag = channel.consume(stream, arguments={"x-stream-offset": "first"})
    item = channel.conn.next_item(channel.number, timeout=LONG_S)
    while not isinstance(item, Basic.Cancel):
        assert int(item.body.split()[0]) < 100
        item = channel.conn.next_item(channel.number, timeout=LONG_S)
    assert item.consumer_tag == tag
    assert "stream_unreadable" in life.process.log_text()
    assert bodies(read(life, stream, 1, "last"))[0].startswith(b"399 ")
    publish(life, stream, b"goes on")


class Publisher(threading.Thread):
    """Publishes without end, and notes what was confirmed."""

    def __init__(self, life, name, stream):
        super().__init__(daemon=True)
        self.life = life
        self.stream = stream
        self.label = name
        self.sent = 0
        self.confirmed = set()
        self.url = life.process.amqp_url()
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            try:
                connection = WireConnection.connect(self.url)
            except LOST:
                self.ended.wait(0.02)
                continue
            try:
                self.work(connection.open_channel())
            except LOST:
                pass
            finally:
                connection.abort()

    def work(self, channel):
        channel.rpc(Confirm.Select())
        open_ = {}
        tag = 0
        while not self.ended.is_set() or open_:
            if not self.ended.is_set():
                for _ in range(25):
                    tag += 1
                    open_[tag] = self.sent
                    key = {"x-partition-key": f"{self.label}{self.sent % 4}"}
                    body = b"%s %d " % (self.label.encode(), self.sent) + bytes(2000)
                    channel.publish("", self.stream, body, headers=key)
                    self.sent += 1
            while len(open_) > 100 or (open_ and self.ended.is_set()):
                ack = channel.expect(Basic.Ack)
                done = (
                    [t for t in open_ if t <= ack.delivery_tag]
                    if ack.multiple
                    else [ack.delivery_tag]
                )
                self.confirmed.update(open_.pop(t) for t in done)


def read_all(life, stream):
    """Per partition what there is, as (offset, key, body), in the order it came."""
    channel = life.channel()
    count = channel.count(stream)
    found = defaultdict(list)
    for record in read(life, stream, count):
        number = record.headers["x-stream-partition"]
        key = record.headers["x-partition-key"]
        found[number].append((record.headers["x-stream-offset"], key, record.body.rstrip(b"\0")))
    return dict(found)


def test_killed_under_load_a_stream_keeps_its_word(life: Life) -> None:
    """Contiguous offsets, all that was confirmed, the same order for all readers and for ever."""
    stream = declare(life, partitions=3)
    publishers = [Publisher(life, name, stream) for name in "ab"]
    for publisher in publishers:
        publisher.start()
    known: dict[int, list] = {}
    for round_ in range(2):
        wanted = 300 * (round_ + 1)
        eventually(
            lambda wanted=wanted: all(len(p.confirmed) >= wanted for p in publishers),
            "records to be confirmed",
            within_s=LONG_S,
        )
        life.restart("kill")
        for publisher in publishers:
            publisher.url = life.process.amqp_url()
        found = read_all(life, stream)
        for number, records in known.items():
            assert found[number][: len(records)] == records, "what was read once stays"
        known = found
    for publisher in publishers:
        publisher.ended.set()
        publisher.join(LONG_S)
        assert not publisher.is_alive()
    life.restart("kill")
    one, other = read_all(life, stream), read_all(life, stream)
    assert one == other
    for number, records in known.items():
        assert one[number][: len(records)] == records
    for records in one.values():
        assert [offset for offset, _, _ in records] == list(range(len(records)))
    texts = [body for records in one.values() for _, _, body in records]
    for publisher in publishers:
        mine = [int(t.split()[1]) for t in texts if t.startswith(publisher.label.encode())]
        assert publisher.confirmed <= set(mine)
        for number in range(4):
            key = f"{publisher.label}{number}"
            of_key = [
                int(body.split()[1])
                for records in one.values()
                for _, k, body in records
                if k == key
            ]
            assert of_key == sorted(set(of_key)), "a key's records in order, none twice"
