"""Messages through the SQS door: sent, received and deleted in batches of ten.

    python -m benchmarks.sqs [--clients 16] [--seconds 5] [--body 100] [--fifo]

Clients sign each request, as boto3 does, and keep their connections. Every message counts once,
when it is deleted; the queue is durable, so that each batch is on disk before it is answered.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import re
import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.brokers import ProcessTree, run_process
from benchmarks.wire import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY_LINE = re.compile(r"^leveret ready .*http=(\S+):(\d+)", re.MULTILINE)
BATCH = 10
REGION = "us-east-1"
USER = SECRET = "guest"


class Signer:
    """Version 4 signatures for one host, with the day's key worked out once."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._date = datetime.now(UTC).strftime("%Y%m%d")
        self._scope = f"{self._date}/{REGION}/sqs/aws4_request"
        self._key = f"AWS4{SECRET}".encode()
        for part in self._scope.split("/"):
            self._key = hmac.digest(self._key, part.encode(), "sha256")

    def request(self, action: str, parameters: dict[str, Any]) -> bytes:
        body = json.dumps(parameters).encode()
        now = self._date + time.strftime("T%H%M%SZ", time.gmtime())
        target = f"AmazonSQS.{action}"
        names = "content-type;host;x-amz-date;x-amz-target"
        lines = f"content-type:application/x-amz-json-1.0\nhost:{self._host}\n"
        lines += f"x-amz-date:{now}\nx-amz-target:{target}\n"
        digest = hashlib.sha256(body).hexdigest()
        canonical = f"POST\n/\n\n{lines}\n{names}\n{digest}".encode()
        hashed = hashlib.sha256(canonical).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{now}\n{self._scope}\n{hashed}".encode()
        signature = hmac.digest(self._key, to_sign, "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\n"
            f"X-Amz-Date: {now}\r\nX-Amz-Target: {target}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={USER}/{self._scope}, "
            f"SignedHeaders={names}, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Client:
    """One keep-alive connection."""

    def __init__(self, stream: trio.SocketStream, signer: Signer) -> None:
        self._stream = stream
        self._signer = signer

    async def call(self, action: str, **parameters: Any) -> dict[str, Any]:
        await self._stream.send_all(self._signer.request(action, parameters))
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
        while len(body) < length:
            body += await self._receive()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise BrokerError(f"{action}: {body.decode()}")
        return json.loads(body)

    async def _receive(self) -> bytes:
        data = await self._stream.receive_some(65536)
        if not data:
            raise BrokerError("the broker closed the connection")
        return data


class Load:
    """What all clients did within the time that counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.messages = 0
        self.cycles_s: list[float] = []
        self.counting = False

    async def run(self, host: str, port: int) -> None:
        signer = Signer(f"{host}:{port}")
        async with trio.open_nursery() as nursery:
            for number in range(self.options.clients):
                stream = await trio.open_tcp_stream(host, port)
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nursery.start_soon(self._work, Client(stream, signer), number)
            await trio.sleep(1)  # to warm up
            self.counting = True
            await trio.sleep(self.options.seconds)
            self.counting = False
            nursery.cancel_scope.cancel()

    async def _work(self, client: Client, number: int) -> None:
        name = f"bench-{number % self.options.queues}"
        attributes = {"VisibilityTimeout": "600"}
        if self.options.fifo:
            name += ".fifo"
            attributes["FifoQueue"] = "true"
        made = await client.call("CreateQueue", QueueName=name, Attributes=attributes)
        url, body, turn = made["QueueUrl"], "x" * self.options.body, 0
        while True:
            began = trio.current_time()
            turn += 1
            entries: list[dict[str, Any]] = [
                {"Id": str(place), "MessageBody": body} for place in range(BATCH)
            ]
            if self.options.fifo:
                for place, entry in enumerate(entries):
                    entry["MessageGroupId"] = str(number)
                    entry["MessageDeduplicationId"] = f"{number}-{turn}-{place}"
            await client.call("SendMessageBatch", QueueUrl=url, Entries=entries)
            await self._take(client, url)
            if self.counting:
                self.cycles_s.append(trio.current_time() - began)

    async def _take(self, client: Client, url: str) -> None:
        """As many as were sent; with several clients on a queue they may be others."""
        taken = 0
        while taken < BATCH:
            got = await client.call(
                "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=BATCH - taken, WaitTimeSeconds=5
            )
            entries = [
                {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]}
                for place, one in enumerate(got.get("Messages", []))
            ]
            if entries:
                answer = await client.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
                taken += len(answer["Successful"])
                if self.counting:
                    self.messages += len(answer["Successful"])


@contextmanager
def _broker() -> Iterator[tuple[str, int, ProcessTree]]:
    with tempfile.TemporaryDirectory(prefix="leveret-bench-") as home:
        command = [sys.executable, "-m", "broker", "serve", "--data-dir", f"{home}/data"]
        command += ["--amqp-port", "0", "--http-port", "0"]
        with run_process(command, log=Path(home, "output.log")) as process:
            for output in process.outputs_until_deadline():
                if ready := _READY_LINE.search(output):
                    yield ready[1], int(ready[2]), ProcessTree(process.pid)
                    return
            raise BrokerError("leveret did not print its ready line in time")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sqs", description=__doc__)
    parser.add_argument("--clients", type=int, default=16, help="connections (16)")
    parser.add_argument("--queues", type=int, default=1, help="that they share (1)")
    parser.add_argument("--seconds", type=float, default=5.0, help="that count (5)")
    parser.add_argument("--body", type=int, default=100, help="bytes of a message (100)")
    parser.add_argument("--fifo", action="store_true", help="FIFO queues, a group for each client")
    options = parser.parse_args()
    load = Load(options)
    with _broker() as (host, port, processes):
        before_s = processes.cpu_s()
        trio.run(load.run, host, port)
        cpu_s = processes.cpu_s() - before_s
    cycles_s = sorted(load.cycles_s)
    median_ms = 1000 * cycles_s[len(cycles_s) // 2] if cycles_s else float("nan")
    rate = load.messages / options.seconds
    print(f"{rate:,.0f} messages/s sent, received and deleted, {options.clients} clients")
    print(f"{median_ms:.1f} ms median for ten; {cpu_s:.1f} s of the broker's CPU in all")


if __name__ == "__main__":
    main()
