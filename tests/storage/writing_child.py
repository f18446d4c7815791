"""Writes to a store until killed, and prints each submit as it becomes durable."""

import os
import sys
from pathlib import Path
from threading import Event, Lock, Semaphore, Thread

from queues.storage.disk import RealDisk
from queues.storage.log_store import LogStore, StoredEntry
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer

OPTIONS = StoreOptions(wal_file_bytes=256 * 1024, free_bytes_min=0, reserve_bytes=8192)
UUIDS = [bytes([number]) * 16 for number in range(1, 5)]
KEEP = 50  # entries of each group, beside the first, that are not released
AHEAD = 8  # submits that may wait for the disk


def payload(gid: int, index: int) -> bytes:
    return b"%d.%d " % (gid, index) + b"x" * (index * 37 % 900)


def main(directory: str) -> None:
    promised: dict[int, list[tuple[int, int]]] = {}
    guard = Lock()
    news = Event()
    ahead = Semaphore(AHEAD)

    def durable(number: int) -> None:
        lines = []
        with guard:
            for submit in [n for n in promised if n <= number]:
                lines += [f"{gid} {index}\n" for gid, index in promised.pop(submit)]
                ahead.release()
        news.set()
        os.write(sys.stdout.fileno(), "".join(lines).encode())

    events = StoreEvents(durable, lambda error: os.abort(), lambda full: None)
    store = LogStore.open(
        RealDisk(Path(directory)), OPTIONS, events, new_store_id=lambda: os.urandom(16)
    )
    batch = store.batch()
    gids = [store.gid_of(uuid) or batch.create_group(uuid) for uuid in UUIDS]
    if batch:
        store.submit(batch)
    last = {gid: store.group(gid).last_index for gid in gids}
    reclaimer = Reclaimer(store)

    def reclaim() -> None:
        while True:
            if not reclaimer.step():
                news.wait()
                news.clear()

    Thread(target=reclaim, daemon=True).start()
    while True:
        ahead.acquire()
        batch = store.batch()
        written = []
        for gid in gids:
            first = last[gid] + 1
            last[gid] += 3
            batch.append(gid, [StoredEntry(i, 1, payload(gid, i)) for i in range(first, first + 3)])
            written += [(gid, index) for index in range(first, first + 3)]
        with guard:
            promised[store.submit(batch)] = written
        for gid in gids:
            store.committed(gid, last[gid] - 6)
            store.release(gid, [(2, last[gid] - KEEP)])


if __name__ == "__main__":
    main(sys.argv[1])
