"""A real file system that is full: publishers wait and are told, everything else goes on."""

import contextlib
import subprocess

import pytest

from tests.durability.life import Life, drain
from tests.support.frames import Basic, Confirm, Connection
from tests.support.waiting import eventually
from tests.support.wire import ALL_CAPABILITIES

# Two files of the log, what must stay free, and some room.
DISK_BYTES = 192 * 1024 * 1024
FREE_BYTES_MIN = 16 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path):
    """A life whose data directory is a small file system of its own."""
    data_dir = tmp_path / "life" / "data"
    data_dir.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(data_dir)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        life = Life(tmp_path / "life", "--disk-free-bytes-min", str(FREE_BYTES_MIN))
        yield life
        life.end()
    finally:
        subprocess.run(["umount", "-l", str(data_dir)], check=True)


def fill_up(life):
    """Leave not a byte; the file that takes them all."""
    path = life.data_dir / "filling"
    with path.open("wb", buffering=0) as filling:
        for size in (1024 * 1024, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filling.write(bytes(size))
    return path


def test_a_full_disk_holds_publishers_up_and_nothing_else(small_disk):
    life = small_disk
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish_all("q", [b"%d" % n for n in range(20)])
    both = life.channel()
    both.rpc(Confirm.Select())
    both.qos(5)
    both.consume("q")
    held = both.deliveries(5)
    silent = life.channel(capabilities={**ALL_CAPABILITIES, "connection.blocked": False})

    filling = fill_up(life)
    eventually(lambda: "node.alarm" in life.process.log_text(), "the broker to notice")
    both.publish("", "q", b"while full", delivery_mode=2)
    blocked = both.conn.expect(Connection.Blocked)
    assert blocked.reason == "low on disk"
    silent.publish("", "q", b"in silence", delivery_mode=2)

    # Consuming goes on, on the very same channel, and so does everybody else.
    both.ack(held[-1].delivery_tag, multiple=True)
    assert [d.body for d in both.deliveries(5)] == [b"%d" % n for n in range(5, 10)]
    assert life.channel().count("q") == 10
    assert both.pending() == []

    filling.unlink()
    both.conn.expect(Connection.Unblocked)
    both.expect(Basic.Ack)
    silent.count("q")
    assert silent.conn.pending(0) == []
    life.confirming().barrier()
    life.restart("kill")
    left = drain(life.channel(), "q")
    assert left[:15] == [b"%d" % n for n in range(5, 20)]
    assert sorted(left[15:]) == [b"in silence", b"while full"]
    assert "Traceback" not in life.process.log_text()


def test_a_broker_that_starts_on_a_full_disk_serves_consumers(small_disk):
    life = small_disk
    publisher = life.confirming()
    publisher.channel.declare_queue("q", durable=True)
    publisher.publish_all("q", [b"1", b"2"])
    life.kill()
    fill_up(life)
    life.start()
    channel = life.channel()
    assert drain(channel, "q") == [b"1", b"2"]
    channel.publish("", "q", b"3", delivery_mode=2)
    channel.conn.expect(Connection.Blocked)
