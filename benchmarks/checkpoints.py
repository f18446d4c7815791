"""How long a checkpoint of a queue's live set holds up the loop.

Run it with `python -m benchmarks.checkpoints`. It tells the CPU time in milliseconds: of copying
the state, of the longest slice of encoding it, of all slices together, and of restoring it.
"""

import sys
from time import process_time

from queues.commands import encode_enqueue
from queues.live import LiveSet
from queues.message import Message

ENTRIES = 1_000_000


def message() -> Message:
    made = Message(b"\0\0", b"\x02" + bytes(6), 0, 0, 0, 1)
    made.expires_at = None
    made.priority = 0
    return made


def main(entries: int) -> None:
    live = LiveSet()
    entry = encode_enqueue([message()], 0)
    for index in range(1, entries + 1):  # one message an entry: each waits for its confirm
        live.apply(2 * index, entry)
    began = process_time()
    frozen = live.freeze()
    copied = process_time()
    slices, longest, last = frozen.slices(), 0.0, copied
    done = object()
    while next(slices, done) is not done:
        longest, last = max(longest, process_time() - last), process_time()
    longest = max(longest, process_time() - last)
    encoded = process_time()
    LiveSet.restore(frozen.state).indexes()
    restored = process_time()
    print(f"{entries} entries, {len(frozen.state) / 1e6:.0f} MB")
    for what, seconds in (
        ("copied", copied - began),
        ("longest slice", longest),
        ("all slices", encoded - copied),
        ("restored", restored - encoded),
    ):
        print(f"{what:14} {1000 * seconds:8.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES)
