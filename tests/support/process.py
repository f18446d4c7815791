"""A broker in a process of its own, for tests over real sockets."""

import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

from tests.support.forked import Forked

READY_LINE = re.compile(
    r"leveret ready amqp=(?P<host>[\d.]+):(?P<amqp>\d+) http=[\d.]+:(?P<http>\d+)"
)
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 20.0
INTERNAL_ERRORS = re.compile(r'^leveret_internal_errors_total{where="(.+?)"} (.+)$', re.MULTILINE)
TRACEBACK = "Traceback (most recent call last)"
ROOT = Path(__file__).resolve().parents[2]


class BrokerProcess:
    """Started by the constructor, ready when it returns; `stop` or `kill` ends it."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        env: dict[str, str] | None = None,
        config: str | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self._log_path = directory / "broker.log"
        self._output: list[str] = []
        self._asked_to_end = False
        self._announced = threading.Event()
        self._ready: re.Match[str] | None = None
        command = ["serve", "--amqp-port", "0", "--http-port", "0"]
        command += ["--data-dir", str(self.data_dir), *arguments]
        if config is not None:
            config_path = directory / "leveret.toml"
            config_path.write_text(config)
            command += ["--config", str(config_path)]
        with self._log_path.open("ab") as log:
            self._process = Forked(command, clean_environment(env or {}), log)
        threading.Thread(target=self._read_output, daemon=True).start()
        self._wait_until_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def host(self) -> str:
        return self._ready["host"]

    @property
    def amqp_port(self) -> int:
        return int(self._ready["amqp"])

    @property
    def http_port(self) -> int:
        return int(self._ready["http"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def amqp_url(self, vhost: str = "/", *, user: str = "guest", password: str = "guest") -> str:
        return f"amqp://{user}:{password}@{self.host}:{self.amqp_port}/{quote(vhost, safe='')}"

    def http_url(self, path: str = "/") -> str:
        return f"http://{self.host}:{self.http_port}{path}"

    def log_text(self) -> str:
        return "".join(self._output) + self._log_path.read_text(errors="replace")

    def terminate(self) -> None:
        """Ask it to end, once, and do not wait."""
        if self.alive and not self._asked_to_end:
            self._asked_to_end = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to end and return its exit code; killed if it does not listen."""
        self.terminate()
        try:
            return self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker ignored SIGTERM for {STOP_DEADLINE_S} s\n{self.log_text()}"
            ) from None

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def assert_sound(self) -> None:
        """It still runs, and nothing went wrong that it did not expect."""
        assert self.alive, f"the broker died\n{self.log_text()}"
        assert TRACEBACK not in self.log_text(), self.log_text()

    def internal_errors(self) -> dict[str, int]:
        """How many bugs of its own it has met, by where; those that were not left out."""
        with urlopen(self.http_url("/metrics"), timeout=60) as answer:
            text = answer.read().decode()
        counts = {where: int(float(count)) for where, count in INTERNAL_ERRORS.findall(text)}
        assert counts, "the metric is missing"
        return {where: count for where, count in counts.items() if count}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _read_output(self) -> None:
        for line in self._process.stdout:
            self._output.append(line)
            if match := READY_LINE.search(line):
                self._ready = match
                self._announced.set()
        self._announced.set()

    def _wait_until_ready(self) -> None:
        self._announced.wait(START_DEADLINE_S)
        if self._ready is None:
            self.kill()
            raise AssertionError(f"the broker did not get ready\n{self.log_text()}")


class OtherBroker:
    """A broker somebody else runs, so that the tests can be checked against it."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def host(self) -> str:
        return urlsplit(self._url).hostname or "127.0.0.1"

    @property
    def amqp_port(self) -> int:
        return urlsplit(self._url).port or 5672

    def amqp_url(self) -> str:
        return self._url


def clean_environment(extra: dict[str, str]) -> dict[str, str]:
    """The environment without LEVERET_* variables: what a test says is all a broker is told."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LEVERET_")}
    return {**kept, "LEVERET_SPARK_CACHE": "off", **extra}
