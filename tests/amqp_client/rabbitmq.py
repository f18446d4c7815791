"""The tests of the AMQP clients against a real RabbitMQ, started for them and for nobody else.

python -m tests.amqp_client.rabbitmq [arguments for pytest]
"""

import os
import subprocess
import sys

from benchmarks.brokers import rabbitmq, rabbitmq_installed
from tests.conftest import OTHER_BROKER
from tests.support.process import ROOT


def main() -> int:
    if not rabbitmq_installed():
        print("rabbitmq-server is not installed", file=sys.stderr)
        return 1
    with rabbitmq() as broker:
        command = [sys.executable, "-m", "pytest", "tests/amqp_client", *sys.argv[1:]]
        environment = {**os.environ, OTHER_BROKER: broker.url}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
