"""Spark adds up a shop's orders: revenue per region and ten minutes, printed and plotted.

Orders made up by Faker go into a stream queue. A streaming query reads them in batches, and writes
sums to a second stream, exactly once: those of ten minutes when these are over, and no order can be
on its way that would belong to them and is not more than ten minutes late.

Run it with `python examples/spark_orders.py` while the broker runs (`make run`); `--svg FILE` saves
the picture too. It needs Java 17 and `pip install -e '.[spark]' faker`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from faker import Faker
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients import blocking, streams

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
ORDERS, REVENUE = "examples.shop", "examples.shop.revenue"
REGIONS = OrderedDict(north=0.4, south=0.3, east=0.2, west=0.1)  # and their shares
OPENING = datetime(2026, 11, 20, 9, tzinfo=UTC)
ORDER = "id int, customer string, region string, euros decimal(10, 2), at timestamp"
COLOURS = {"north": "blue", "south": "green", "east": "yellow", "west": "red"}
SHADES = dict(zip(REGIONS, "█▓▒░", strict=True))  # where there are no colours
BAR_CHARS = 30  # of the longest


def make_orders(count: int) -> Iterator[dict[str, Any]]:
    """Of 80 minutes, the same ones each time."""
    fake = Faker()
    fake.seed_instance(17)
    for number in range(count):
        at = OPENING + timedelta(minutes=80) * number / count
        yield {
            "id": number,
            "customer": fake.name(),
            "region": fake.random_element(REGIONS),
            "euros": fake.random_int(500, 20_000) / 100,
            "at": at.isoformat(),
        }


def write_orders(client: streams.StreamClient, count: int) -> None:
    with client.producer(ORDERS) as producer:
        for order in make_orders(count):
            producer.send(json.dumps(order).encode(), key=order["customer"].encode())


def revenue(orders: DataFrame) -> DataFrame:
    """Key and value of a record for each window and region."""
    order = sql.from_json(sql.col("value").cast("string"), ORDER)
    sums = (
        orders.select(order.alias("order"))
        .select("order.*")
        .withWatermark("at", "10 minutes")
        .groupBy(sql.window("at", "10 minutes"), "region")
        .agg(sql.sum("euros").alias("euros"), sql.count("*").alias("orders"))
    )
    start = sql.date_format("window.start", "HH:mm").alias("start")
    return sums.select(
        sql.concat_ws(" ", start, "region").alias("key"),
        sql.to_json(sql.struct(start, "region", "euros", "orders")).alias("value"),
    )


def add_up(spark: SparkSession, checkpoint: str) -> int:
    """Run the query until all that is there was read; how many batches it took."""
    orders = (
        spark.readStream.format("leveret")
        .option("url", URL)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .load()
    )
    query = (
        revenue(orders)
        .writeStream.format("leveret")
        .option("url", URL)
        .option("topic", REVENUE)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(batch.numInputRows > 0 for batch in query.recentProgress)


def read_sums(client: streams.StreamClient) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in client.reader(REVENUE, partition=0, offset=0)]


def plot(sums: list[dict[str, Any]], console: Console) -> None:
    """A row for each window: its sums as numbers and as a bar."""
    windows: dict[str, Counter[str]] = {}
    for each in sums:
        windows.setdefault(each["start"], Counter())[each["region"]] = each["euros"]
    most = max((sum(euros.values()) for euros in windows.values()), default=0)

    table = Table(box=box.SIMPLE, title="revenue in euros")
    table.add_column("from")
    for region in REGIONS:
        table.add_column(Text(f"{region} {SHADES[region]}", COLOURS[region]), justify="right")
    table.add_column("sum", justify="right")
    table.add_column("")
    for start, euros in sorted(windows.items()):
        bar = Text()
        for region in REGIONS:
            chars = round(BAR_CHARS * euros[region] / most)
            bar.append(SHADES[region] * chars, COLOURS[region])
        numbers = [*(euros[region] for region in REGIONS), sum(euros.values())]
        table.add_row(start, *(f"{each:,.0f}" for each in numbers), bar)
    console.print(table)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Revenue per region, by Spark.")
    arguments.add_argument("--orders", type=int, default=3000, help="how many")
    arguments.add_argument("--svg", type=Path, help="a file for the picture")
    chosen = arguments.parse_args()

    with (
        blocking.connect(URL) as connection,
        connection.channel() as channel,
        streams.connect(URL) as client,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        for stream in (ORDERS, REVENUE):
            channel.delete_queue(stream)  # should an earlier run have left it
        channel.declare_queue(ORDERS, arguments={"x-queue-type": "stream", "x-partitions": 4})
        channel.declare_queue(REVENUE, arguments={"x-queue-type": "stream"})
        write_orders(client, chosen.orders)

        spark = start_spark()
        batches = add_up(spark, checkpoint)
        spark.stop()

        sums = read_sums(client)
        over = sum(each["orders"] for each in sums)
        print(
            f"{chosen.orders} orders in {batches} batches, {over} of them in windows that are over"
        )
        console = Console(record=True, width=90)
        plot(sums, console)
        if chosen.svg is not None:
            console.save_svg(str(chosen.svg), title="spark_orders.py")
        for stream in (ORDERS, REVENUE):
            channel.delete_queue(stream)


def start_spark() -> SparkSession:
    """Small and on this machine: two cores, and results in two pieces instead of 200."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", value=False)
        .config("spark.ui.showConsoleProgress", value=False)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
