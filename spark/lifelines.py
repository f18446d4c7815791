"""Processes that end with the one that started them, however that ends (Linux).

A process that is killed has no time to end its children, so they have to see to it themselves.

    python -m spark.lifelines PARENT MODULE ARGUMENTS...
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def tie_to_parent(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """The kernel sends `by` to this process when `parent`, which started it, is gone.

    The kernel looks at the thread that forked, so that has to be one which lives as long as its
    process. A parent that was gone before this call is noticed here.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(by), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def tied(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of Python until it ends, or this process does."""
    return [sys.executable, "-m", "spark.lifelines", str(os.getpid()), module, *arguments]


def main() -> None:
    parent, module, *arguments = sys.argv[1:]
    tie_to_parent(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
