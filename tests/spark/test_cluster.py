"""Executors in other processes, which get the package as one file and know nothing else of it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.spark.session import SETTINGS, spark_home
from tests.spark.streams import Streams
from tests.support.process import ROOT

WITHIN_S = 240
THIRD_PARTY = ("trio", "pamqp", "cbor2", "h11", "psutil", "click", "rich")
SHIPPED = ("broker", "clients", "spark", "pyspark_leveret")
SCRIPT = """
import sys
import spark as package
from pyspark.sql import SparkSession

def where(_):
    import spark as package
    return [package.__file__]

session = SparkSession.builder.getOrCreate()
session.dataSource.register(package.StreamQueueSource)
url, stream = sys.argv[1:]
frame = session.read.format("leveret").option("url", url).option("subscribe", stream).load()
print("rows", frame.count())
print("from", *session.sparkContext.parallelize([0], 1).mapPartitions(where).collect())
"""


def test_what_executors_load_needs_nothing_that_spark_does_not() -> None:
    loaded = f"import sys, spark.source; print([m for m in {THIRD_PARTY} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_cluster_gets_the_package_with_py_files(streams: Streams, tmp_path: Path) -> None:
    name = streams.declare(partitions=2)
    streams.fill(name, [b"0", b"1", b"2"], 1)
    script, shipped = tmp_path / "script.py", tmp_path / "leveret.zip"
    script.write_text(SCRIPT)
    with zipfile.ZipFile(shipped, "w") as archive:
        for package in SHIPPED:
            for file in (ROOT / package).rglob("*.py"):
                archive.write(file, file.relative_to(ROOT))
    found = submit(tmp_path, "--py-files", str(shipped), str(script), streams.url, name)
    assert "rows 3" in found.stdout, found.stderr
    assert "leveret.zip/spark/__init__.py" in found.stdout, found.stderr


def submit(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As from a shell, to a cluster of one executor."""
    home = spark_home(directory)
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]"]
    for setting, text in SETTINGS.items():
        command += ["--conf", f"{setting}={text.format(directory=directory)}"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.run(
        [*command, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
