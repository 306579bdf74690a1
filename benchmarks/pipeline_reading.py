"""How fast Spark reads a topic: our source from its directory and from the running broker, and Spark's own connector.

    python benchmarks/pipeline_reading.py
    python benchmarks/pipeline_reading.py --runs 5 --topic 100-none

All in one run, one session and on one topic, with all columns, to the sink that drops them; the runs of the readers
alternate. The naive decoder has no Spark: it makes a tuple of each record of the directory's files. CPU is that of the
JVM and of Spark's Python processes, and of the broker. It needs Java, and Maven for the connector.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from machine import ROOT, cpu_seconds, load_average

sys.path.insert(0, str(ROOT))

from conformance.builds import spark_connector  # noqa: E402
from minibroker.cli.shared import print_table  # noqa: E402
from minibroker.pipeline.session import session  # noqa: E402
from minibroker.protocol.records.formats import batches_in, records_in  # noqa: E402
from tests.running import RunningBroker, running_broker  # noqa: E402

PARTITIONS = 2
RECORDS = {100: 2_000_000, 1000: 600_000}
NAIVE_RECORDS = 100_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Topic(NamedTuple):
    """The contents of one topic."""

    size_bytes: int
    codec: str

    @property
    def name(self) -> str:
        return f"{self.size_bytes}-{self.codec}"

    @property
    def records(self) -> int:
        return RECORDS[self.size_bytes]


class Sample(NamedTuple):
    """One run: records a second, and CPU microseconds a record."""

    rate: float
    jvm: float
    python: float
    broker: float


TOPICS = tuple(Topic(size, codec) for size in RECORDS for codec in ("none", "lz4", "zstd"))


def fill(broker: RunningBroker, topic: Topic) -> None:
    """Records of text like JSON with keys, in batches of 16 KB, as the Java client makes them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic.name, PARTITIONS, 1)])[topic.name].result()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": topic.codec,
            "batch.size": 16384,
            "linger.ms": 50,
            "queue.buffering.max.messages": 100_000,
        }
    )
    random = Random(1)
    heads = [
        b'{"id":%d,"customer":"customer-%d","amount":%d,"note":"' % (n, n % 977, n * 7 % 10007) for n in range(5000)
    ]
    values = [head + random.randbytes(topic.size_bytes).hex().encode() for head in heads]
    values = [value[: topic.size_bytes - 2] + b'"}' for value in values]
    for number in range(topic.records):
        while True:
            try:
                producer.produce(topic.name, values[number % 5000], b"key-%05d" % (number % 9999), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def reader(spark: SparkSession, kind: str, where: dict[str, str], topic: Topic) -> Callable[[], None]:
    """A whole read to nowhere; each run plans anew."""

    def read() -> None:
        frame: DataFrame = spark.read.format(kind).options(**where, subscribe=topic.name).load()
        frame.write.format("noop").mode("overwrite").save()

    return read


def python_cpu_seconds(jvm: int) -> float:
    """User and system time of all processes below the JVM, those included that have ended."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    below, found = {jvm}, 0
    for _ in range(4):  # daemon and workers
        below |= {pid for pid, (parent, _) in parents.items() if parent in below}
    for pid in below - {jvm}:
        found += parents[pid][1]
    return found * TICK_S


def measured(read: Callable[[], None], topic: Topic, jvm: int, broker: int) -> Sample:
    before = time.perf_counter(), cpu_seconds(jvm), python_cpu_seconds(jvm), cpu_seconds(broker)
    read()
    after = time.perf_counter(), cpu_seconds(jvm), python_cpu_seconds(jvm), cpu_seconds(broker)
    seconds, *cpu = (end - start for start, end in zip(before, after, strict=True))
    return Sample(topic.records / seconds, *(1e6 * each / topic.records for each in cpu))


def naive(directory: Path, topic: Topic) -> Sample:
    """The first records of a directory, as tuples."""
    started, cpu = time.perf_counter(), time.process_time()
    rows = sum(1 for _ in islice(tuples(directory, topic), NAIVE_RECORDS))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Sample(rows / seconds, 0.0, 1e6 * cpu / rows, 0.0)


def tuples(directory: Path, topic: Topic) -> Iterator[tuple[Any, ...]]:
    for partition in range(PARTITIONS):
        for file in sorted((directory / f"{topic.name}-{partition}").glob("*.log")):
            data = memoryview(file.read_bytes())
            for position, header in batches_in(data):
                kind = header.timestamp_type
                for each in records_in(data[position : position + header.size_bytes]):
                    yield each.key, each.value, topic.name, partition, each.offset, each.timestamp, kind


def rows_of(topic: Topic, samples: dict[str, list[Sample]]) -> Iterator[list[str]]:
    connector = max(sample.rate for sample in samples["Spark's connector, broker"])
    for name, taken in samples.items():
        best = max(sample.rate for sample in taken)
        jvm, python, broker = (median(sample[index] for sample in taken) for index in (1, 2, 3))
        rates = f"{best / 1e3:.0f} k", f"{median(sample.rate for sample in taken) / 1e3:.0f} k"
        cpu = f"{jvm + python:.2f}", f"{jvm:.2f}", f"{python:.2f}", f"{broker:.2f}"
        yield [topic.name, name, *rates, f"{best / connector:.2f}", *cpu]


def compare(spark: SparkSession, broker: RunningBroker, topic: Topic, runs: int) -> list[list[str]]:
    """Fill a topic and read it `runs` times by each reader, after a run that does not count."""
    fill(broker, topic)
    jvm = spark.sparkContext._gateway.proc.pid
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    directory = broker.directory / "data"
    readers = {
        "minibroker, directory": reader(spark, "minibroker", {"path": str(directory)}, topic),
        "minibroker, broker": reader(spark, "minibroker", servers, topic),
        "Spark's connector, broker": reader(spark, "kafka", {**servers, "startingOffsets": "earliest"}, topic),
    }
    for read in readers.values():
        read()
    samples: dict[str, list[Sample]] = {name: [] for name in readers}
    for _ in range(runs):
        for name, read in readers.items():
            samples[name].append(measured(read, topic, jvm, broker.process.pid))
    samples["naive decoder, directory"] = [naive(directory, topic)]
    return list(rows_of(topic, samples))


@click.command()
@click.option("--runs", default=3, show_default=True, help="How often each reader reads each topic.")
@click.option("--topic", "names", multiple=True, type=click.Choice([topic.name for topic in TOPICS]))
def main(runs: int, names: tuple[str, ...]) -> None:
    """Compare the readers, and print a table."""
    load = load_average()
    jars = ",".join(map(str, spark_connector()))
    spark = session("local[2]", **{"spark.jars": jars, "spark.driver.memory": "2g"})
    rows = []
    with tempfile.TemporaryDirectory(prefix="minibroker-benchmarks-") as folder, running_broker(Path(folder)) as broker:
        for topic in TOPICS:
            if not names or topic.name in names:
                rows += compare(spark, broker, topic, runs)
    spark.stop()
    headings = ["topic", "reader", "best/s", "median/s", "of connector", "us", "JVM", "Python", "broker"]
    print_table(headings, rows)
    click.echo(f"load average {load:.1f} before, {load_average():.1f} after")


if __name__ == "__main__":
    main()
