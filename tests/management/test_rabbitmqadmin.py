"""RabbitMQ 3.10's own command line tool, unmodified, does its work here.

`make` takes it out of Debian's rabbitmq-server and puts it beside the interpreter; one on the PATH
will do as well.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.management.conftest import Stage
from tests.support.process import BrokerProcess

NEARBY = Path(sys.executable).parent / "rabbitmqadmin"
TOOL = str(NEARBY) if NEARBY.exists() else shutil.which("rabbitmqadmin")
TIMEOUT_S = 60.0

# Arguments, and what is in the output.
COMMANDS = [
    ("declare queue name=q1 durable=true", "queue declared"),
    ("declare queue name=q2 queue_type=classic auto_delete=false", "queue declared"),
    ("declare exchange name=x1 type=topic", "exchange declared"),
    ("declare exchange name=x2 type=fanout", "exchange declared"),
    ("declare binding source=x1 destination=q1 routing_key=a.#", "binding declared"),
    ("declare binding source=x1 destination=x2 destination_type=exchange", "binding declared"),
    ('declare policy name=p pattern=^q1 definition={"max-length":100} priority=1', "declared"),
    ('declare operator_policy name=o pattern=^q1 definition={"max-length":9}', "declared"),
    ("declare vhost name=v", "vhost declared"),
    ("declare user name=u password=pw tags=management", "user declared"),
    ("declare permission vhost=v user=u configure=.* write=.* read=.*", "permission declared"),
    ("declare vhost_limit vhost=v name=max-queues value=7", "declared"),
    ("list vhosts name", "v"),
    ("list users", "management"),
    ("list permissions", ".*"),
    ("list vhost_limits", "max-queues"),
    ("delete vhost_limit vhost=v name=max-queues", "deleted"),
    ("delete permission vhost=v user=u", "permission deleted"),
    ("delete user name=u", "user deleted"),
    ("delete vhost name=v", "vhost deleted"),
    ("publish exchange=x1 routing_key=a.b payload=hello", "Message published"),
    ("publish exchange=x1 routing_key=nowhere payload=hello", "NOT routed"),
    ('publish routing_key=q1 payload=direct properties={"delivery_mode":2}', "published"),
    ("get queue=q1 count=2", "hello"),
    ("get queue=q1 ackmode=ack_requeue_false", "hello"),
    ("get queue=q1 ackmode=reject_requeue_false", "direct"),
    ("get queue=q1", "No items"),
    ("list queues name messages", "q1"),
    ("list queues vhost name node messages message_stats.publish_details.rate", "q2"),
    ("list exchanges", "x1"),
    ("list bindings", "a.#"),
    ("list nodes", "disc"),
    ("list connections", "guest"),
    ("list channels", "guest"),
    ("list consumers", "ct1"),
    ("list policies", "max-length"),
    ("list parameters", "No items"),
    ("show overview", "cluster_name"),
    ("purge queue name=q1", "queue purged"),
    ("delete binding source=x1 destination_type=queue destination=q1 properties_key=a.%23", "del"),
    ("delete policy name=p", "policy deleted"),
    ("delete operator_policy name=o", "deleted"),
    ("delete exchange name=x2", "exchange deleted"),
    ("delete exchange name=x1", "exchange deleted"),
    ("delete queue name=q1", "queue deleted"),
]


def run(node: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert TOOL is not None, "there is no rabbitmqadmin: make .venv/bin/rabbitmqadmin"
    command = [sys.executable, TOOL, "-H", node.host, "-P", str(node.http_port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


@pytest.mark.usefixtures("stage")
def test_its_commands_work_one_after_the_other(node: BrokerProcess) -> None:
    for command, wanted in COMMANDS:
        done = run(node, *command.split())
        assert done.returncode == 0, (command, done)
        assert wanted in done.stdout, (command, done)


def test_its_formats_get_all_columns(node: BrokerProcess, stage: Stage) -> None:
    done = run(node, "-f", "raw_json", "list", "queues")
    names = {row["name"] for row in json.loads(done.stdout)}
    assert {"classic", "quorum", "stream"} <= names
    assert run(node, "-f", "long", "-d", "3", "list", "queues").returncode == 0


def test_it_closes_connections(node: BrokerProcess, stage: Stage) -> None:
    rows = json.loads(run(node, "-f", "raw_json", "list", "connections", "name").stdout)
    done = run(node, "close", "connection", f"name={rows[0]['name']}")
    assert done.returncode == 0, done
    assert "connection closed" in done.stdout


def test_what_it_exports_it_can_import(node: BrokerProcess, tmp_path: Path) -> None:
    run(node, "declare", "queue", "name=kept", 'arguments={"x-max-length":3}')
    file = tmp_path / "definitions.json"
    assert run(node, "export", str(file)).returncode == 0
    run(node, "delete", "queue", "name=kept")
    done = run(node, "import", str(file))
    assert done.returncode == 0, done
    rows = json.loads(run(node, "-f", "raw_json", "list", "queues", "name", "arguments").stdout)
    assert {"name": "kept", "arguments": {"x-max-length": 3}} in rows


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("declare queue name=q durable=x", "not a boolean"),
        ("delete queue name=nothing", "Not found"),
        ("declare exchange name=x type=nothing", "invalid exchange type"),
    ],
)
def test_it_shows_what_is_wrong(node: BrokerProcess, command: str, wanted: str) -> None:
    done = run(node, *command.split())
    assert done.returncode != 0
    assert wanted in done.stdout + done.stderr
