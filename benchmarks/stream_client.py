"""What the blocking stream client reads and writes in a second, from files in the page cache.

    python -m benchmarks.stream_client [--mib 256] [--rounds 3]

The server side is the real one, in a process of its own; behind it stand streams without a log, so
that this measures the protocol, sendfile, the socket and the client, and not the storage.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from broker.protocol.chunk import encode_chunk
from clients.stream_reader import Reader
from clients.streams import StreamClient, connect
from tests.stream_wire.door import Door

MIB = 1024 * 1024
SIZES = (100, 1024)
CHUNK_BYTES = MIB


def serve(mib: int, pipe: Connection) -> None:
    """Streams of records of each size, and one to write to."""
    with tempfile.TemporaryDirectory() as directory, Door(Path(directory)) as door:
        for size in SIZES:
            count = CHUNK_BYTES // size
            values = [bytes([number % 256]) * size for number in range(count)]
            chunk = encode_chunk([None] * count, values, [b""] * count, 1)
            door.call(door.streams.declare, f"s{size}")
            for _ in range(mib):
                door.append(f"s{size}", chunk)
        door.call(door.streams.declare, "written")
        pipe.send(door.url)
        pipe.recv()


def raw(reader: Reader, client: StreamClient) -> int:
    """Whole chunks, unchecked."""
    offset, end = 0, client.offsets(reader.stream, "next")[0]
    while offset < end:
        offset = client.fetch(reader.stream, 0, offset).head.resume_offset
    return offset


def chunks(reader: Reader, _: StreamClient) -> int:
    return sum(piece.stop - piece.start for piece in reader.slices())


def arrow(reader: Reader, _: StreamClient) -> int:
    return sum(batch.num_rows for batch in reader.arrow_batches())


def records(reader: Reader, _: StreamClient) -> int:
    return sum(1 for _ in reader)


WAYS: tuple[Callable[[Reader, StreamClient], int], ...] = (raw, chunks, arrow, records)


def read_all(client: StreamClient, rounds: int) -> None:
    for size in SIZES:
        for way in WAYS:
            best = 0.0
            for _ in range(rounds):
                started = time.perf_counter()
                count = way(client.reader(f"s{size}", 0, 0), client)
                best = max(best, count / (time.perf_counter() - started))
            tell(f"fetch, {way.__name__}", size, best)


def write(client: StreamClient, mib: int) -> None:
    for size in SIZES:
        value = bytes(size)
        count = mib * MIB // 4 // size
        started = time.perf_counter()
        with client.producer("written") as producer:
            for _ in range(count):
                producer.send(value)
        tell("produce, not durable", size, count / (time.perf_counter() - started))


def tell(what: str, size: int, rate: float) -> None:
    print(f"{what:24} {size:5} B {rate:12,.0f} records/s {rate * size / 1e6:8,.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="values to read of each size")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is told")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(options.mib, theirs))
    server.start()
    try:
        with connect(ours.recv()) as client:
            read_all(client, options.rounds)
            write(client, options.mib)
    finally:
        ours.send(None)
        server.join()


if __name__ == "__main__":
    main()
