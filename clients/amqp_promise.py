"""An answer that has yet to come. Whoever waits says how to be woken; none has to wait."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Promise:
    """Resolved or failed once. An answer that nobody waits for any more is simply kept."""

    __slots__ = ("_error", "_value", "done", "wake")

    def __init__(self) -> None:
        self.done = False
        self.wake: Callable[[], object] | None = None
        self._value: Any = None
        self._error: Exception | None = None

    def resolve(self, value: Any = None) -> None:
        assert not self.done
        self.done = True
        self._value = value
        if self.wake is not None:
            self.wake()

    def fail(self, error: Exception) -> None:
        assert not self.done
        self.done = True
        self._error = error
        if self.wake is not None:
            self.wake()

    def result(self) -> Any:
        assert self.done
        if self._error is not None:
            raise self._error
        return self._value
