"""Group commit: everything submitted meanwhile becomes one write and one sync, then is reported.

A failed write or sync is final: what the kernel then still holds is unknown, so nothing is retried
and nothing later is ever reported durable. Only the want of room for a new file is waited out.
"""

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from threading import Condition, Thread
from typing import Final

from queues.storage.errors import OutOfSpaceError
from queues.storage.frames import Frame
from queues.storage.wal import Wal

# How long to wait before asking again whether there is room for another file.
SPACE_RETRY_S: Final = 1.0
# What one write takes at most: the next sync should not wait for more.
WRITE_BYTES_MAX: Final = 32 * 1024 * 1024


class Writer:
    """Writes frames in order, in a thread of its own or when `flush` is called."""

    def __init__(
        self,
        wal: Wal,
        synced: Callable[[list[Frame]], None],
        failed: Callable[[BaseException], None],
        stalled: Callable[[], None],
    ) -> None:
        self._wal = wal
        self._synced = synced
        self._failed = failed
        self._stalled = stalled
        self._frames: deque[Frame] = deque()
        self._wake = Condition()
        self._closing = False
        self._thread: Thread | None = None
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def put(self, frames: list[Frame]) -> None:
        with self._wake:
            self._frames.extend(frames)
            self._wake.notify()

    def poke(self) -> None:
        """There may be room again."""
        with self._wake:
            self._wake.notify()

    def flush(self) -> None:
        """Write everything here and now, for a store without a thread."""
        assert self._thread is None
        while self._frames and self.failure is None and self._write_some():
            pass

    def close(self) -> None:
        """Write what was submitted, then end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.flush()

    def _run(self) -> None:
        while self.failure is None:
            with self._wake:
                while not self._frames:
                    if self._closing:
                        return
                    self._wake.wait()
            if not self._write_some():
                with self._wake:
                    if self._closing or self.failure is not None:
                        return
                    self._wake.wait(SPACE_RETRY_S)

    def _write_some(self) -> bool:
        """One write and one sync. False if nothing could be written."""
        frames = self._next_frames()
        try:
            frames = self._wal.write(frames)
        except OutOfSpaceError:
            self._stalled()
            return False
        except BaseException as error:  # noqa: BLE001 - whatever it was, durability is gone
            self.fail(error)
            return False
        with self._wake:
            if self.failure is not None:
                return False
            for _ in frames:
                self._frames.popleft()
        self._synced(frames)
        return True

    def fail(self, error: BaseException) -> None:
        """Nothing is durable from now on; said once."""
        with self._wake:
            if self.failure is not None:
                return
            self.failure = error
            self._wake.notify()
        self._failed(error)

    def _next_frames(self) -> list[Frame]:
        """The first frames, all of one file."""
        with self._wake:
            number = self._frames[0].number
            size = 0
            frames = []
            for frame in takewhile(lambda frame: frame.number == number, self._frames):
                frames.append(frame)
                size += frame.size_bytes
                if size > WRITE_BYTES_MAX:
                    break
            return frames
