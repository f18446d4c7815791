"""`leveret data …` on real directories, sound and damaged."""

import json
import subprocess
import sys
from pathlib import Path

import pika
import pytest

MESSAGES = 200


def leveret(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker", "data", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def broker(start_broker):
    """A node with a durable queue of some confirmed messages."""
    process = start_broker()
    with pika.BlockingConnection(pika.URLParameters(process.amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        for number in range(MESSAGES):
            body = b"%06d" % number + bytes(1000)
            channel.basic_publish("", "orders", body, pika.BasicProperties(delivery_mode=2))
    return process


def damage(directory: Path) -> None:
    """Flip a bit in a message in the middle of what was confirmed."""
    for path in directory.glob("wal-*"):
        data = bytearray(path.read_bytes())
        at = data.find(b"%06d" % (MESSAGES // 2))
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("no such message on disk")


def test_a_sound_directory_is_told_to_be_sound(broker):
    assert broker.stop() == 0
    checked = leveret("check", "--data-dir", str(broker.data_dir))
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.rstrip().endswith("2 logs: sound")


def test_statistics_name_the_queues_and_what_they_hold(broker):
    assert broker.stop() == 0
    shown = leveret("stats", "--data-dir", str(broker.data_dir))
    assert shown.returncode == 0, shown.stderr
    assert "queue 'orders' in vhost '/'" in shown.stdout
    report = json.loads(leveret("stats", "--json", "--data-dir", str(broker.data_dir)).stdout)
    logs = {log["name"]: log for log in report["logs"]}
    assert report["sound"]
    assert logs["queue 'orders' in vhost '/'"]["bytes"] > MESSAGES * 1000
    assert logs["definitions"]["damaged"] is None


def test_damage_is_found_and_named_without_changing_anything(broker):
    assert broker.stop() == 0
    damage(broker.data_dir)
    before = {path.name: path.read_bytes() for path in broker.data_dir.iterdir()}
    checked = leveret("check", "--data-dir", str(broker.data_dir))
    assert checked.returncode == 1
    assert "damaged: queue 'orders' in vhost '/'" in checked.stdout
    after = {path.name: path.read_bytes() for path in broker.data_dir.iterdir()}
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_the_directory_of_a_running_node_is_left_alone(broker):
    checked = leveret("check", "--data-dir", str(broker.data_dir))
    assert checked.returncode == 1
    assert "in use" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_a_directory_that_is_not_there_is_a_usage_error(tmp_path):
    checked = leveret("stats", "--data-dir", str(tmp_path / "nowhere"))
    assert checked.returncode == 2
    assert checked.stderr.startswith("leveret: ")


def test_lost_logs_are_told_until_that_is_accepted(broker):
    assert broker.stop() == 0
    directory = str(broker.data_dir)
    newest = max(broker.data_dir.glob("wal-*"))
    newest.unlink()
    checked = leveret("check", "--data-dir", directory)
    assert checked.returncode == 1
    assert f"corrupt: {newest.name} at byte 0: the file is missing" in checked.stdout
    assert "lost: logs that nothing names any more" in checked.stdout
    asked = leveret("accept-loss", "--data-dir", directory)
    assert asked.returncode != 0  # nobody said yes
    accepted = leveret("accept-loss", "--yes", "--data-dir", directory)
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stdout.splitlines()[-1] == "accepted"
    checked = json.loads(leveret("check", "--json", "--data-dir", directory).stdout)
    assert checked["lost"] is None
    again = leveret("accept-loss", "--data-dir", directory)
    assert (again.returncode, again.stdout) == (0, "no logs are lost\n")
