"""A pipeline in a process of its own, which is killed in the middle of its work.

    python -m tests.etl.killed_pipeline DIRECTORY BATCHES

The pipeline is in DIRECTORY/pipeline.json. Once so many batches are done, and while the next one is
under way, the driver's JVM and this process are killed.
"""

import json
import os
import signal
import sys
from pathlib import Path

from spark.etl import Pipeline
from spark.etl.events import Event
from tests.spark.session import start_session


def main() -> None:
    directory, count = Path(sys.argv[1]), int(sys.argv[2])
    spark = start_session(directory / "session")
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    done = 0

    def listen(event: Event) -> None:
        nonlocal done
        done += event.batch is not None
        if done >= count:
            os.kill(driver, signal.SIGKILL)
            os._exit(9)

    values = json.loads((directory / "pipeline.json").read_text())
    Pipeline.from_dict(values, directory).run(spark, once=True, listener=listen)
    sys.exit("it came to its end before it could be killed")


if __name__ == "__main__":
    main()
