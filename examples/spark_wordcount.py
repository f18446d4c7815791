"""Spark counts words: lines come out of a stream queue, counts are printed.

A streaming query that reads what is there and ends (`availableNow`); with a checkpoint of its own
and without that trigger it would go on counting as lines come.

Run it with `python examples/spark_wordcount.py` while the broker runs (`make run`). It needs Java
17 and `pip install -e '.[spark]'`.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, desc, explode, lit, lower, regexp_extract_all

from clients import blocking, streams

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
STREAM = "examples.fables"
FABLE = """\
The hare laughed at the tortoise, for the tortoise was slow.
"Let us race to the river," said the tortoise, and the hare agreed.
The hare ran, and was so far ahead that the hare lay down and slept.
The tortoise did not sleep. The tortoise walked past the hare and won.
"""


def main() -> None:
    with blocking.connect(URL) as connection, connection.channel() as channel:
        channel.delete_queue(STREAM)  # should an earlier run have left it
        channel.declare_queue(STREAM, arguments={"x-queue-type": "stream", "x-partitions": 2})
        write()
        count()
        channel.delete_queue(STREAM)


def write() -> None:
    with streams.connect(URL) as client, client.producer(STREAM) as producer:
        for line in FABLE.splitlines():
            producer.send(line.encode())
    print(f"{producer.confirmed} lines are in the stream")


def count() -> None:
    spark = start_spark()
    lines = (
        spark.readStream.format("leveret")
        .option("url", URL)
        .option("subscribe", STREAM)
        .option("startingOffsets", "earliest")
        .load()
    )
    text = lower(col("value").cast("string"))
    words = lines.select(explode(regexp_extract_all(text, lit("[a-z]+"), lit(0))).alias("word"))
    query = (
        words.groupBy("word")
        .count()
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for word, times in spark.table("counts").orderBy(desc("count"), "word").take(5):
        print(f"{times:3} {word}")
    spark.stop()


def start_spark() -> SparkSession:
    """Small and on this machine: two cores, and results in two pieces instead of 200."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", value=False)
        .config("spark.ui.showConsoleProgress", value=False)
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
