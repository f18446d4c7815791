"""The archive of Spark's classes: found, made by a real JVM, used by it, and tidied up."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from spark.etl import class_archive
from spark.etl.class_archive import LIST_OPTION, ArchiveMaker, ClassArchive
from spark.etl.events import Event

JAVA = Path(shutil.which("java") or "java").resolve()
JARS = Path(pyspark.__file__).parent / "jars"
OURS = "py4j/Py4JException"  # of a jar, so that the class path matters
CLASSES = ["java/lang/Object", "java/lang/String", "java/lang/StringBuilder", OURS]
WAIT_S = 60.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "the classes"  # Spark's launcher splits options at spaces
    monkeypatch.setenv(class_archive.PLACE, str(directory))
    return directory


def a_jvm(class_path: str, *arguments: str) -> Any:
    """As far as the maker asks it."""
    properties = {"java.home": str(JAVA.parent.parent), "java.class.path": class_path}
    beans = SimpleNamespace(
        getRuntimeMXBean=lambda: SimpleNamespace(getInputArguments=lambda: list(arguments))
    )
    lang = SimpleNamespace(
        System=SimpleNamespace(getProperty=properties.get),
        management=SimpleNamespace(ManagementFactory=beans),
    )
    return SimpleNamespace(java=SimpleNamespace(lang=lang))


def found() -> ClassArchive:
    archive = class_archive.find()
    assert archive is not None
    return archive


def py4j_jar() -> str:
    (jar,) = JARS.glob("py4j-*.jar")
    return str(jar)


def test_a_first_start_lists_its_classes_and_later_ones_use_the_archive(place: Path) -> None:
    archive = found()
    assert archive.options() == f'{LIST_OPTION}"{archive.classes}"'
    archive.file.touch()
    assert f'-XX:SharedArchiveFile="{archive.file}"' in archive.options().split(" -Xlog")[0]
    assert archive.file.parent == place
    assert place.stat().st_mode & 0o077 == 0


def test_there_is_none_if_it_is_switched_off_or_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.PLACE, class_archive.OFF)
    assert class_archive.find() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv(class_archive.PLACE, str(tmp_path / "file" / "below"))
    assert class_archive.find() is None


def test_other_jars_and_another_java_have_another_archive(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found().file
    assert found().file == before
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    other = found().file
    assert other != before
    os.utime(tmp_path / "spark" / "jars", (1, 1))
    assert found().file not in (before, other)


def test_what_nobody_uses_or_was_left_behind_is_deleted(place: Path) -> None:
    archive = found()
    ages = {"old.jsa": 31, "fresh.jsa": 29, "x.jsa.7.part": 1, "x.jsa.7.classes": 1}
    for name, days in ages.items():
        (place / name).touch()
        os.utime(place / name, (time.time() - days * 86_400,) * 2)
    archive.classes.touch()
    found()
    assert {each.name for each in place.iterdir()} == {"fresh.jsa", archive.classes.name}


def test_it_is_made_when_all_queries_work_and_the_jvm_takes_it(place: Path) -> None:
    archive = found()
    archive.classes.write_text("\n".join(CLASSES) + "\n")
    jvm = a_jvm(py4j_jar(), f"{LIST_OPTION}{archive.classes}", "-Xmx256m", "-Dsome=thing")
    maker = ArchiveMaker(jvm, ["one", "two"])
    for event in (Event("started", "two"), Event("batch", "one"), Event("batch", "one")):
        maker.saw(event)
    assert maker._making is None
    maker.saw(Event("batch", "two"))
    assert maker._making is not None
    _, thread = maker._making
    thread.join(WAIT_S)
    assert sorted(each.name for each in place.iterdir()) == sorted(
        [archive.file.name, archive.classes.name]
    )
    log = place / "log"
    command = [str(JAVA), "-Xshare:on", f"-XX:SharedArchiveFile={archive.file}", "-Xmx256m"]
    command += [f"-Xlog:class+load:file={log}", "-cp", py4j_jar(), "py4j.Py4JException"]
    subprocess.run(command, check=False, capture_output=True, timeout=WAIT_S)
    (line,) = [each for each in log.read_text().splitlines() if "py4j.Py4JException source" in each]
    assert "shared objects file" in line
    maker.stop()


def test_one_that_is_not_finished_leaves_nothing_behind(place: Path) -> None:
    archive = found()
    archive.classes.write_text("\n".join(CLASSES) + "\n")
    maker = ArchiveMaker(a_jvm(py4j_jar(), f"{LIST_OPTION}{archive.classes}"), ["one"])
    maker.saw(Event("batch", "one"))
    assert maker._making is not None
    process, _ = maker._making
    maker.stop()
    assert process.returncode is not None
    assert [each.name for each in place.iterdir()] == [archive.classes.name]


def test_nothing_is_made_where_the_archive_is_in_use(place: Path) -> None:
    archive = found()
    maker = ArchiveMaker(a_jvm(py4j_jar(), f"-XX:SharedArchiveFile={archive.file}"), ["one"])
    maker.saw(Event("batch", "one"))
    assert maker._making is None
    maker.stop()
