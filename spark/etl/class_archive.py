"""The classes of Spark's JVM, kept on disk in the form that it uses (class data sharing).

To read, check and link some 20,000 classes takes about a fifth of the time until a pipeline has
done its first batch. So the JVM of a first run writes down which ones it loads; when all queries of
the pipeline work, another JVM makes an archive of them, with the lowest priority and beside the
pipeline; and every start after that maps the archive. The JVM itself looks whether it was made by
the same JVM from the same jars, and does without it otherwise.

    $LEVERET_SPARK_CACHE, or leveret/spark in the user's cache directory; "off": no archive
        KEY.jsa               KEY tells one JVM and one set of jars from others
        KEY.jsa.PID.part      being made by that process
        KEY.jsa.PID.classes   what the JVM of that process loads
"""

import atexit
import hashlib
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyspark

from spark.etl.events import Event

PLACE: Final = "LEVERET_SPARK_CACHE"
OFF: Final = "off"
UNUSED_S: Final = 30 * 24 * 3600.0  # after which an archive, of some 200 MB, is deleted
MAKING_S: Final = 1800.0  # a minute's work, which has to wait for what is more urgent
LIST_OPTION: Final = "-XX:DumpLoadedClassList="
_LOG: Final = logging.getLogger("leveret.etl")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive of this machine's Spark is, or is to be."""

    file: Path

    @property
    def is_made(self) -> bool:
        return self.file.is_file()

    @property
    def classes(self) -> Path:
        return self.file.with_name(f"{self.file.name}.{os.getpid()}.classes")

    def options(self) -> str:
        """For the JVM."""
        if not self.is_made:
            atexit.register(self.classes.unlink, missing_ok=True)
            return f"{LIST_OPTION}{_quoted(self.classes)}"
        with suppress(OSError):
            os.utime(self.file)  # it is in use
        return f"-XX:SharedArchiveFile={_quoted(self.file)} -Xlog:cds=off -Xlog:class+path=off"


def find() -> ClassArchive | None:
    """None if there can be none."""
    place = os.environ.get(PLACE, "")
    java = _java()
    if place == OFF or java is None:
        return None
    try:
        directory = Path(place) if place else _cache() / "leveret" / "spark"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            return None
        _sweep(directory)
        return ClassArchive(directory.resolve() / f"{_key(java)}.jsa")
    except (OSError, RuntimeError) as error:  # there is no such directory, or no home
        _LOG.info("no archive of classes: %s", error)
        return None


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path.home() / ".cache"


def _quoted(path: Path) -> str:
    """As Spark's launcher splits options."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _java() -> Path | None:
    """As Spark finds it."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return None if found is None or not Path(found).exists() else Path(found).resolve()


def _key(java: Path) -> str:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    seen = [java, home / "jars"]
    parts = [f"{path} {path.stat().st_mtime_ns}" for path in seen]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class ArchiveMaker:
    """Makes the archive, once all queries have done a batch and so have loaded what they need."""

    def __init__(self, jvm: Any, queries: Iterable[str]) -> None:
        self._jvm = jvm
        self._waiting = set(queries)
        self._making: tuple[subprocess.Popen[bytes], threading.Thread] | None = None

    def saw(self, event: Event) -> None:
        if event.kind != "batch" or not self._waiting:
            return
        self._waiting.discard(event.query)
        if not self._waiting:
            self._start()

    def _start(self) -> None:
        arguments = _arguments(self._jvm)
        classes = _listed(arguments)
        if classes is None or not classes.is_file():
            return  # the archive is in use, or not wanted
        file = classes.with_suffix("").with_suffix("")
        if file.exists():
            return
        part = classes.with_suffix(".part")
        try:
            process = subprocess.Popen(  # noqa: S603 - the java that runs Spark
                _command(self._jvm, arguments, classes, part),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            _LOG.info("no archive of classes: %s", error)
            return
        thread = threading.Thread(target=_finish, args=(process, part, file), daemon=True)
        self._making = process, thread
        thread.start()

    def stop(self) -> None:
        """One that is not finished is left to another run."""
        if self._making is not None:
            process, thread = self._making
            process.kill()
            thread.join()


def _finish(process: subprocess.Popen[bytes], part: Path, file: Path) -> None:
    try:
        if process.wait(MAKING_S) == 0:
            part.replace(file)
    except (OSError, subprocess.TimeoutExpired) as error:
        _LOG.info("no archive of classes: %s", error)
    finally:
        process.kill()
        process.wait()
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _arguments(jvm: Any) -> list[str]:
    beans = jvm.java.lang.management.ManagementFactory
    return [str(each) for each in beans.getRuntimeMXBean().getInputArguments()]


def _listed(arguments: list[str]) -> Path | None:
    """Where this JVM writes down what it loads."""
    found = [each for each in arguments if each.startswith(LIST_OPTION)]
    return Path(found[-1].removeprefix(LIST_OPTION)) if found else None


def _command(jvm: Any, arguments: list[str], classes: Path, part: Path) -> list[str]:
    """The JVM's own, as far as an archive depends on it."""
    system = jvm.java.lang.System
    java = Path(system.getProperty("java.home")) / "bin" / "java"
    kept = [each for each in arguments if not each.startswith(("-D", LIST_OPTION))]
    # It ends with the thread that runs the pipeline, however that ends.
    bound = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
    return [
        *("nice", "-n", "19", *bound, str(java), *kept, "-Xshare:dump"),
        *(f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={part}"),
        *("-cp", system.getProperty("java.class.path")),
    ]


def _sweep(directory: Path) -> None:
    """What nobody has used for long, and what those left behind that were killed."""
    now_s = time.time()
    for each in directory.glob("*.jsa*"):
        with suppress(OSError):
            unused_s = now_s - each.stat().st_mtime
            if unused_s > (UNUSED_S if each.suffix == ".jsa" else MAKING_S):
                each.unlink()
