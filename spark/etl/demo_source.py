"""The process that makes the demo's events, at a steady pace, until it is told to end.

    python -m spark.etl.demo_source URL PREFIX RATE SECONDS

It writes a line of JSON now and then: how many events there are, and how many orders are bad.
"""

import json
import sys
import time
from typing import Final

from clients.streams import connect
from spark.etl.demo_data import Shop
from spark.etl.demo_streams import append

STRETCH_MS: Final = 250
TOLD_EVERY: Final = 4  # stretches
MOVES: Final = 2  # users of a stretch who now live elsewhere
PUT_OFF: Final = 8  # stretches that it may be late before it gives up catching up


def make_events(url: str, prefix: str, per_s: int, seconds: float) -> None:
    shop = Shop()
    with connect(url, name="etl demo") as client:
        append(client, f"{prefix}users", shop.all_users())
        _tell(shop)
        due = time.time()
        for turn in range(round(seconds * 1000 / STRETCH_MS)):
            start_ms = int(due * 1000)
            events = shop.stretch(start_ms, STRETCH_MS, per_s * STRETCH_MS // 1000)
            for kind, some in events.items():
                append(client, prefix + kind, some)
            append(client, f"{prefix}users", [shop.moved_user() for _ in range(MOVES)])
            if turn % TOLD_EVERY == 0:
                _tell(shop)
            due += STRETCH_MS / 1000
            late_s = time.time() - due
            if late_s < 0:
                time.sleep(-late_s)
            elif late_s > PUT_OFF * STRETCH_MS / 1000:
                due = time.time()
    _tell(shop)


def _tell(shop: Shop) -> None:
    print(json.dumps({"made": shop.made, "bad": shop.bad}), flush=True)


def main() -> None:
    url, prefix, per_s, seconds = sys.argv[1:]
    make_events(url, prefix, int(per_s), float(seconds))


if __name__ == "__main__":
    main()
