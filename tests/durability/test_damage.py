"""Damaged files: a torn tail is cut, anything else is named, and only what is hurt refuses."""

import re
from zlib import crc32

import pytest

from tests.durability.life import drain
from tests.durability.test_lives import start_and_fail
from tests.queues.fakes import FakeContext, new_queue
from tests.support.frames import Basic, Queue, kind_of
from tests.support.wire import ChannelClosedError

FRAME_MAGIC = b"LVRF"
READ_BYTES = 1024 * 1024  # more than any of these tests writes


class LogFile:
    """The oldest log file of a data directory, the only one before the first restart."""

    def __init__(self, life):
        self.path = min(life.data_dir.glob("wal-*"))
        with self.path.open("rb") as file:
            self.content = file.read(READ_BYTES)
        self.end = len(self.content.rstrip(b"\0"))  # of what was ever written
        assert self.end < READ_BYTES

    def find(self, text):
        assert self.content.count(text) == 1
        return self.content.index(text)

    def frames(self):
        return [found.start() for found in re.finditer(FRAME_MAGIC, self.content)]

    def frame_with(self, text):
        """Where the frame begins that holds this."""
        return max(place for place in self.frames() if place < self.find(text))

    def write(self, place, data):
        with self.path.open("r+b") as file:
            file.seek(place)
            file.write(data)

    def flip(self, place):
        self.write(place, bytes([self.content[place] ^ 0x10]))

    def wipe(self, place):
        """All from here on."""
        self.write(place, bytes(self.end - place))


def keep_apart(publisher):
    """More bytes than a bad sector is taken to spread over, with all that was in them."""
    for _ in range(10):
        publisher.publish("", "between", b"-" * 2000)


def fill(life, *names):
    """Each queue gets ten messages, each of them confirmed by itself, and so in its own frame."""
    publisher = life.confirming()
    for name in (*names, "far", "between"):
        publisher.channel.declare_queue(name, durable=True)
    publisher.publish("", "far", b"away")
    keep_apart(publisher)
    for number in range(10):
        for name in names:
            publisher.publish("", name, b"<%s %d>" % (name.encode(), number))
    return publisher


def bodies(name, numbers=range(10)):
    return [b"<%s %d>" % (name.encode(), number) for number in numbers]


def refusal(life, name):
    """How a queue refuses every use; the text of it."""
    texts = set()
    for method in (
        Basic.Get(queue=name),
        Basic.Consume(queue=name),
        Queue.Purge(queue=name),
        Queue.Declare(queue=name, passive=True),
    ):
        channel = life.channel()
        channel.send(method)
        with pytest.raises(ChannelClosedError) as error:
            channel.expect(Basic.CancelOk)
        assert error.value.method.reply_code == 404, method
        texts.add(error.value.method.reply_text)
    [text] = texts
    return text


@pytest.mark.parametrize("kept", [0, 1, 44, -1])
def test_a_torn_tail_is_cut_and_all_before_it_is_there(life, kept):
    """The last frame was being written when the power went: so many bytes of it arrived."""
    publisher = fill(life, "q")
    publisher.publish("", "q", b"<torn>")
    life.kill()
    log = LogFile(life)
    last = log.frames()[-1]
    log.wipe(last + kept if kept >= 0 else log.end + kept)
    life.start()
    if kept not in (0, 1):  # a byte is not enough to be seen
        assert "torn write cut from wal-" in life.process.log_text()
    assert drain(life.channel(), "q") == bodies("q")
    life.confirming().publish("", "q", b"goes on")
    life.restart("kill")
    assert b"goes on" in drain(life.channel(), "q")


def test_garbage_behind_the_end_is_cut(life):
    fill(life, "q")
    life.kill()
    log = LogFile(life)
    log.write(log.end, bytes(range(250)) * 12)
    life.start()
    assert drain(life.channel(), "q") == bodies("q")


def test_a_flipped_byte_in_a_message_damages_its_queue_and_no_other(life):
    fill(life, "sound", "hurt").barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.find(b"<hurt 4>") + 6)
    life.start()
    assert "is damaged" in refusal(life, "hurt")
    assert "wal-" in life.process.log_text()
    assert "queue_damaged" in life.process.log_text()
    publisher = life.confirming()
    publisher.publish("", "sound", b"more")
    assert drain(publisher.channel, "sound") == [*bodies("sound"), b"more"]
    publisher.send("", "hurt", b"refused")
    publisher.channel.expect(Basic.Nack)
    life.restart("stop")
    assert "is damaged" in refusal(life, "hurt")


def test_a_flipped_byte_in_a_frame_s_header_damages_what_was_in_it(life):
    fill(life, "sound", "hurt").barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.frame_with(b"<hurt 4>") + 8)
    life.start()
    assert "is damaged" in refusal(life, "hurt")
    assert drain(life.channel(), "far") == [b"away"]


def test_a_queue_whose_whole_log_is_lost_is_not_taken_for_an_empty_one(life):
    """The frame that named the log is gone, and with it all that says whose log it was."""
    publisher = life.confirming()
    for name in ("far", "between", "hurt"):
        publisher.channel.declare_queue(name, durable=True)
    publisher.publish("", "far", b"away")
    keep_apart(publisher)
    publisher.publish("", "hurt", b"<hurt 0>")
    keep_apart(publisher)
    life.kill()
    log = LogFile(life)
    log.flip(log.frame_with(b"<hurt 0>") + 8)
    life.start()
    assert "is damaged" in refusal(life, "hurt")
    assert drain(life.channel(), "far") == [b"away"]


def test_damage_found_while_reading_messages_back_is_told_to_whoever_waits(life):
    """More messages than are read at the start; then the rest goes bad under a running broker."""
    publisher = life.confirming()
    for name in ("sound", "getting", "consuming"):
        publisher.channel.declare_queue(name, durable=True)
    publisher.publish("", "sound", b"x")
    for name in ("getting", "consuming"):
        publisher.publish_all(name, [b"<%s %d>" % (name.encode(), n) for n in range(3200)])
    life.restart("stop")
    log = LogFile(life)
    for name in (b"getting", b"consuming"):
        log.flip(log.find(b"<%s 3199>" % name) + 3)
    getter = life.channel()
    with pytest.raises(ChannelClosedError, match=r"404.*'getting'.* is damaged"):
        drain(getter, "getting")
    consumer = life.channel()
    consumer.consume("consuming", "tag", no_ack=True)
    while kind_of(item := consumer.conn.next_item(consumer.number)) is Basic.Deliver:
        assert item.body.startswith(b"<consuming ")
    assert isinstance(item, Basic.Cancel)
    assert drain(life.channel(), "sound") == [b"x"]
    assert "corrupt" in life.process.log_text()


def test_a_damaged_queue_can_be_deleted_and_made_anew(life):
    fill(life, "hurt").barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.find(b"<hurt 4>") + 6)
    life.start()
    with pytest.raises(ChannelClosedError, match="not empty"):
        life.channel().rpc(Queue.Delete(queue="hurt", if_empty=True))
    life.channel().rpc(Queue.Delete(queue="hurt"))
    publisher = life.confirming()
    publisher.channel.declare_queue("hurt", durable=True)
    publisher.publish("", "hurt", b"new")
    life.restart("kill")
    assert drain(life.channel(), "hurt") == [b"new"]


def test_damaged_definitions_stop_the_start_in_one_line(life):
    channel = life.channel()
    channel.declare_queue("a-telling-name", durable=True)
    life.confirming().barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.find(b"a-telling-name"))
    before = log.path.read_bytes()
    for _ in range(2):
        code, said = start_and_fail(life.data_dir)
        assert code == 1
        assert said.splitlines()[-1].startswith("leveret: the definitions are damaged: wal-")
        assert "Traceback" not in said
    assert log.path.read_bytes() == before


def test_lost_definitions_are_not_taken_for_none(life):
    """The very first frame, which names the log of the definitions, is gone."""
    fill(life, "q").barrier()
    life.kill()
    log = LogFile(life)
    log.flip(log.frames()[0] + 8)
    code, said = start_and_fail(life.data_dir)
    assert code == 1
    assert "leveret: the definitions are damaged: " in said
    assert "Traceback" not in said


def test_a_damaged_file_header_costs_nothing_while_the_manifest_says_whose_file_it_is(life):
    fill(life, "q")
    life.kill()
    LogFile(life).flip(20)
    life.start()
    assert "bad file header" in life.process.log_text()
    assert drain(life.channel(), "q") == bodies("q")


def test_files_that_nothing_says_whose_they_are_stop_the_start_in_one_line(life):
    fill(life, "q")
    life.kill()
    LogFile(life).flip(20)
    for path in life.data_dir.glob("manifest-*"):
        path.unlink()
    code, said = start_and_fail(life.data_dir)
    assert code == 1
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("leveret: cannot use data directory")


def test_files_of_another_version_stop_the_start_in_one_line(life):
    fill(life, "q")
    life.kill()
    log = LogFile(life)
    header = log.content[:8] + bytes([77]) + log.content[9:40]
    log.write(0, header + crc32(header).to_bytes(4, "little"))
    code, said = start_and_fail(life.data_dir)
    assert code == 1
    assert "format version 77" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_nobody_waits_for_messages_of_a_damaged_queue():
    queue = new_queue(FakeContext())
    woken = []
    queue.when_loaded(lambda: woken.append(queue.damaged))
    queue.damage("a bad sector")
    assert woken == ["a bad sector"]
