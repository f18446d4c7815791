"""What Spark takes for Python behaves as Python does, though its processes are forked."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.fork_keeper import ForkKeeper, start_fork_server

PATIENCE_S = 60.0
TELLER = """\
import json, os, sys
from pathlib import Path
told = {
    "argv": sys.argv[1:], "cwd": os.getcwd(), "name": __name__, "input": sys.stdin.read(),
    "environ": os.environ.get("TOLD"), "home": os.environ.get("HOME"), "parent": os.getppid(),
    "pyarrow": "pyarrow" in sys.modules,
}
print(json.dumps(told))
print("to the side", file=sys.stderr)
sys.exit(7)
"""
SLEEPER = """\
import os, time
print("awake", os.getpid(), os.getppid(), flush=True)
time.sleep(600)
"""
# In a directory of modules it keeps fork servers from starting.
BARRIER = """\
import os, sys
if "spark.fork_server" in sys.orig_argv:
    os._exit(1)
"""
DRIVER = """\
import sys
from spark.fork_keeper import start_fork_server
print(start_fork_server(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return start_fork_server()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    for name, text in {"teller": TELLER, "sleeper": SLEEPER}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[str]]:
    """A process that has a server; its first line says which command stands in for Python."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


@contextmanager
def sleeping(python: Path, directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """What was launched, the forked process, and the server."""
    launched = subprocess.Popen(
        [python, "-m", "sleeper"], cwd=directory, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert launched.stdout is not None
    with launched.stdout:
        awake, process, server = launched.stdout.readline().split()
        assert awake == b"awake"
        yield launched, int(process), int(server)
    launched.kill()
    launched.wait()


def run(python: Path, directory: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(directory), **environ},
        input="what was said",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_module_has_the_streams_arguments_environment_and_directory_of_its_caller(
    python: Path, modules: Path
) -> None:
    code, out, err = run(python, modules, "-m", "teller", "one", "two words", TOLD="so")
    told = json.loads(out)
    assert told.pop("parent") != os.getpid()
    assert told == {
        "argv": ["one", "two words"],
        "cwd": str(modules),
        "name": "__main__",
        "input": "what was said",
        "environ": "so",
        "home": None,
        "pyarrow": True,
    }
    assert (code, err) == (7, "to the side\n")


def test_processes_are_forked_from_one_server_and_do_not_see_each_other(
    python: Path, modules: Path
) -> None:
    first, second = (
        json.loads(run(python, modules, "-m", "teller", TOLD=each)[1]) for each in "ab"
    )
    assert first["parent"] == second["parent"]
    assert (first["environ"], second["environ"]) == ("a", "b")


def test_what_is_no_module_is_run_by_python_itself(python: Path, tmp_path: Path) -> None:
    code, out, _ = run(python, tmp_path, "-c", "import sys; print(sys.executable); sys.exit(3)")
    assert (code, out.strip()) == (3, sys.executable)


def test_a_module_that_is_not_there_fails(python: Path, tmp_path: Path) -> None:
    code, _, err = run(python, tmp_path, "-m", "nobody.knows_this")
    assert code == 1
    assert "nobody" in err


def test_a_module_that_is_killed_tells_so(python: Path, tmp_path: Path) -> None:
    (tmp_path / "suicide.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert run(python, tmp_path, "-m", "suicide")[0] == 128 + signal.SIGKILL


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_kills_what_it_started_ends_the_forked_process(
    python: Path, modules: Path, by: signal.Signals
) -> None:
    with sleeping(python, modules) as (launched, _, _):
        launched.send_signal(by)
        launched.wait(PATIENCE_S)
        assert launched.stdout is not None
        assert launched.stdout.read() == b""  # which ends when the last who could write to it does


def test_a_client_and_its_process_that_end_at_once_do_not_end_the_server(
    python: Path, modules: Path
) -> None:
    with sleeping(python, modules) as (launched, process, server):
        os.kill(server, signal.SIGSTOP)  # so that it hears of both in one look
        os.kill(process, signal.SIGKILL)
        while ") Z " not in Path(f"/proc/{process}/stat").read_text():
            os.sched_yield()
        launched.kill()
        launched.wait(PATIENCE_S)
        os.kill(server, signal.SIGCONT)
    assert json.loads(run(python, modules, "-m", "teller")[1])["parent"] == server


def test_a_server_that_is_killed_is_started_again_and_its_processes_end(
    python: Path, modules: Path
) -> None:
    with sleeping(python, modules) as (launched, _, server):
        os.kill(server, signal.SIGKILL)
        assert launched.wait(PATIENCE_S) != 0
        assert launched.stdout is not None
        assert launched.stdout.read() == b""
    code, out, _ = run(python, modules, "-m", "teller")
    told = json.loads(out)
    assert (code, told["pyarrow"]) == (7, True)
    assert told["parent"] != server


def test_if_no_server_starts_python_is_python(
    modules: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = tmp_path_factory.mktemp("barrier")
    (barrier / "sitecustomize.py").write_text(BARRIER)
    monkeypatch.setenv("PYTHONPATH", str(barrier))
    keeper = ForkKeeper()
    keeper.keep()  # until it gives up
    code, out, _ = run(keeper.launcher, modules, "-m", "teller")
    assert (code, json.loads(out)["pyarrow"]) == (7, False)
    keeper.close()
    assert not keeper.directory.exists()


def test_the_server_ends_with_its_driver_however_that_ends(driver: subprocess.Popen[str]) -> None:
    assert driver.stdout is not None
    launcher = Path(driver.stdout.readline().strip())
    run(launcher, launcher.parent, "-m", "this")
    driver.kill()
    driver.wait()
    assert driver.stdout.read() == ""  # the server has the other end, too
    assert not launcher.parent.exists()


def test_without_its_server_python_is_python(driver: subprocess.Popen[str], modules: Path) -> None:
    assert driver.stdout is not None
    launcher = Path(driver.stdout.readline().strip())
    (launcher.parent / "socket").unlink()
    code, out, _ = run(launcher, modules, "-m", "teller")
    assert code == 7
    assert json.loads(out)["pyarrow"] is False
