"""How much CPU a read of a topic takes in Spark: by our source, by Spark's own connector, and by a source of nothing.

    python benchmarks/pipeline_reading.py                             # half an hour on two idle cores
    python benchmarks/pipeline_reading.py --topic 100 --broker kafka  # a part of it

Each reader reads all columns of one topic from Apache Kafka and from minibroker, which do not count; ours also reads
minibroker's directory. The session is a plain one of PySpark on two cores, and the sink drops the rows. *Warm* are
reads in a session that has done each of them before, in an order that alternates; *cold* is a whole process that does
one read, its start included. The source of nothing has as many tasks and no rows: what PySpark itself takes for a
source in Python.
It needs Java, and Maven for the connector and Kafka.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from machine import ROOT, load_average

sys.path.insert(0, str(ROOT))

from conformance.builds import spark_connector  # noqa: E402
from conformance.kafka_reference import KafkaProcess  # noqa: E402
from minibroker.cli.shared import print_table  # noqa: E402
from tests.running import running_broker  # noqa: E402

RECORDS: Final = {"100": 2_000_000, "1000": 300_000}  # by their size in bytes
PARTITIONS: Final = 2
LOOK_S: Final = 0.1
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
OURS, CONNECTOR, DIRECTORY, NOTHING = "minibroker", "connector", "directory", "nothing"
READERS: Final = {"batch": (CONNECTOR, OURS, DIRECTORY, NOTHING), "stream": (CONNECTOR, OURS, NOTHING)}
HEAD: Final = ("broker", "bytes", "read as", "reader", "", "CPU s", "JVM", "Python", "seconds", "all CPU s")
SPARK_CONF: Final = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"}


class NothingBatch(DataSourceReader):
    """As many tasks as the topic has partitions, and no rows."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class NothingStream(DataSourceStreamReader):
    """One batch of as many tasks, and no rows."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class NothingSource(DataSource):
    """A source of nothing, written in Python."""

    @classmethod
    def name(cls) -> str:
        return NOTHING

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"

    def reader(self, schema: object) -> NothingBatch:
        return NothingBatch()

    def streamReader(self, schema: object) -> NothingStream:
        return NothingStream()


class Case(NamedTuple):
    """One way to read a topic."""

    kind: str
    reader: str


class Took(NamedTuple):
    """Seconds of CPU of the JVM and of Python, and on the clock."""

    jvm: float
    python: float
    clock: float


def new_session() -> SparkSession:
    """A session as anyone's, with the connector's jars."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]").config(
        "spark.jars", ",".join(map(str, spark_connector()))
    )
    for name, value in SPARK_CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(NothingSource)
    return spark


def read(spark: SparkSession, case: Case, servers: str, directory: str, topic: str) -> None:
    """Read the whole topic to nowhere."""
    where = {"path": directory} if case.reader == DIRECTORY else {"kafka.bootstrap.servers": servers}
    options = {} if case.reader == NOTHING else {**where, "subscribe": topic, "startingOffsets": "earliest"}
    form = {CONNECTOR: "kafka", NOTHING: NOTHING}.get(case.reader, "minibroker")
    if case.kind == "batch":
        spark.read.format(form).options(**options).load().write.format("noop").mode("overwrite").save()
        return
    frame = spark.readStream.format(form).options(**options).load()
    trigger = {"once": True} if case.reader == NOTHING else {"availableNow": True}  # it has no limits to take
    query = frame.writeStream.format("noop").trigger(**trigger).start()
    query.awaitTermination()
    rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert rows == (0 if case.reader == NOTHING else RECORDS[topic]), rows


class Usage:
    """The CPU of a process and all below it, as often as one looks: a process that has ended counts as last seen."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[int, tuple[bool, int]] = {}  # whether it is a JVM, and its CPU

    def look(self) -> tuple[float, float]:
        """Return the seconds so far of JVMs and of Python."""
        parents: dict[int, int] = {}
        found: dict[int, tuple[bool, int]] = {}
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            try:
                name, _, rest = Path("/proc", entry, "stat").read_text().rpartition(")")
            except OSError:
                continue  # it has just ended
            fields = rest.split()
            parents[int(entry)] = int(fields[1])
            found[int(entry)] = (name.endswith("(java"), int(fields[11]) + int(fields[12]))
        below = {self._root}
        for _ in range(6):  # Python, JVM, daemon, workers
            below |= {pid for pid, parent in parents.items() if parent in below}
        self._ticks.update({pid: found[pid] for pid in below & found.keys()})
        jvm, python = (sum(ticks for is_jvm, ticks in self._ticks.values() if is_jvm == kind) for kind in (True, False))
        return jvm * TICK_S, python * TICK_S

    def measured(self, run: Callable[[], object]) -> Took:
        """Return what a call takes here and below the process."""
        over = threading.Event()
        began, (jvm, python) = time.perf_counter(), self.look()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            run()
        finally:
            over.set()
            watcher.join()
        clock, (jvm_after, python_after) = time.perf_counter() - began, self.look()
        return Took(jvm_after - jvm, python_after - python, clock)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(LOOK_S):
            self.look()


def fill(servers: str, topic: str) -> None:
    """Records of text like JSON with keys, in batches of 16 KB, uncompressed, as the Java client makes them."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer(
        {"bootstrap.servers": servers, "batch.size": 16384, "linger.ms": 50, "enable.idempotence": True}
    )
    random, size = Random(1), int(topic)
    heads = [b'{"id":%d,"customer":"customer-%d","note":"' % (number, number % 977) for number in range(5000)]
    values = [(head + random.randbytes(size).hex().encode())[: size - 2] + b'"}' for head in heads]
    for number in range(RECORDS[topic]):
        while True:
            try:
                producer.produce(topic, values[number % 5000], b"key-%05d" % (number % 9999), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def cases(broker: str) -> list[Case]:
    """The ways to read from a broker."""
    found = [Case(kind, reader) for kind, readers in READERS.items() for reader in readers]
    return [case for case in found if broker == "minibroker" or case.reader != DIRECTORY]


def warm(broker: str, servers: str, directory: str, topic: str, runs: int) -> dict[Case, list[Took]]:
    """Read by each reader once, and then `runs` times, every other time in the opposite order."""
    spark = new_session()
    gateway: Any = spark.sparkContext._gateway
    usage = Usage(gateway.proc.pid)
    found: dict[Case, list[Took]] = {case: [] for case in cases(broker)}
    for number in range(runs + 1):
        for case in list(found)[:: -1 if number % 2 else 1]:
            took = usage.measured(lambda case=case: read(spark, case, servers, directory, topic))
            if number:
                found[case].append(took)
    spark.stop()
    return found


def cold(broker: str, servers: str, directory: str, topic: str) -> dict[Case, list[Took]]:
    """Read once by each reader, each in a process of its own."""
    found = {}
    for case in cases(broker):
        command = [sys.executable, __file__, "--one", *case, servers, directory, topic]
        with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, cwd=folder) as process:
            found[case] = [Usage(process.pid).measured(process.wait)]
        assert process.returncode == 0
    return found


@contextmanager
def running(broker: str, folder: Path) -> Iterator[tuple[str, str]]:
    """A broker; yield its address and its directory."""
    if broker == "minibroker":
        with running_broker(folder) as ours:
            yield ours.bootstrap_servers, str(folder / "data")
        return
    process = KafkaProcess(folder, {})
    process.start()
    try:
        yield process.bootstrap_servers, ""
    finally:
        process.kill()


def rows_of(broker: str, topic: str, state: str, found: dict[Case, list[Took]]) -> Iterator[list[str]]:
    for case, taken in found.items():
        jvm, python, clock = (median(each) for each in zip(*taken, strict=True))
        each = " ".join(f"{took.jvm + took.python:.1f}" for took in taken)
        yield [broker, topic, *case, state, f"{jvm + python:.1f}", f"{jvm:.1f}", f"{python:.1f}", f"{clock:.1f}", each]


@click.command()
@click.option("--runs", default=3, show_default=True, help="How often each warm read is measured.")
@click.option("--topic", "topics", multiple=True, type=click.Choice([*RECORDS]), default=tuple(RECORDS))
@click.option(
    "--broker", "brokers", multiple=True, type=click.Choice(["kafka", "minibroker"]), default=("kafka", "minibroker")
)
@click.option("--cold/--no-cold", "is_cold", default=True, help="Whether cold reads are measured, of the first topic.")
@click.option("--one", nargs=5, hidden=True, help="Read once and end.")
def main(runs: int, topics: tuple[str, ...], brokers: tuple[str, ...], is_cold: bool, one: tuple[str, ...]) -> None:
    """Compare the readers, and print a table; CPU is the median of the runs, without the broker's."""
    if one:
        read(new_session(), Case(one[0], one[1]), *one[2:])
        return
    started, load = time.monotonic(), load_average()
    rows: list[list[str]] = []
    for broker in brokers:
        with (
            tempfile.TemporaryDirectory(prefix="minibroker-benchmarks-") as folder,
            running(broker, Path(folder)) as at,
        ):
            for topic in topics:
                fill(at[0], topic)
            for number, topic in enumerate(topics):
                rows += rows_of(broker, topic, "warm", warm(broker, *at, topic, runs))
                if is_cold and number == 0:
                    rows += rows_of(broker, topic, "cold", cold(broker, *at, topic))
                click.echo(f"{broker}, {topic} bytes: {time.monotonic() - started:.0f} s", err=True)
    print_table(HEAD, rows)
    click.echo(f"{time.monotonic() - started:.0f} s; load average {load:.1f} before, {load_average():.1f} after")


if __name__ == "__main__":
    main()
