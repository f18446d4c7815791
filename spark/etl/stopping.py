"""Ctrl-C and SIGTERM ask a running pipeline for an orderly end."""

import signal
import sys
import threading
from typing import Final

EXIT_INTERRUPTED: Final = 130


def stop_on_signals(stop: threading.Event) -> None:
    """The first one asks for an orderly end; a second one of Ctrl-C does not wait for it."""

    def handle(number: int, frame: object) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            sys.exit(EXIT_INTERRUPTED)
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
