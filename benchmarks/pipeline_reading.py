"""How fast Spark reads a topic, by our source and by Spark's own connector: batches and streams, one and two workers.

    python benchmarks/pipeline_reading.py                             # some ten minutes on two idle cores
    python benchmarks/pipeline_reading.py --topic 100-lz4 --runs 1    # a part of it

One run measures everything. All readers read from one broker. They run on a standalone cluster; each worker has one
core. Each reads all columns, and the sink drops them. The runs of the readers alternate. Kafka Connect then writes the
values of each topic to a file, its simplest sink, with as many tasks. CPU is that of all JVMs (the driver's, too), of
Spark's Python processes, and of the broker. It needs Java, and Maven for the connector and Kafka Connect.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from kafka_connect import Connect, running_connect
from machine import ROOT, cpu_seconds, load_average

sys.path.insert(0, str(ROOT))

from conformance.builds import spark_connector  # noqa: E402
from conformance.pipeline_cluster.standalone import SETTINGS, StandaloneCluster, running_cluster  # noqa: E402
from minibroker.cli.shared import print_table  # noqa: E402
from minibroker.pipeline.session import session  # noqa: E402
from tests.running import RunningBroker, running_broker  # noqa: E402

WORKERS = (1, 2)
RECORDS = {100: 1_000_000, 1000: 300_000}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
OURS, DIRECTORY, CONNECTOR, CONNECT = "minibroker", "minibroker, directory", "Spark's connector", "Kafka Connect, file"
HEADINGS = [
    "topic",
    "read as",
    "reader",
    "workers",
    "best/s",
    "of connector",
    "of 1 worker",
    "us",
    "JVM",
    "Python",
    "broker",
]
# Executors as users have them: with the optimising compiler, and memory for it.
EXECUTORS = {
    "spark.driver.extraJavaOptions": "",
    "spark.executor.extraJavaOptions": "",
    "spark.executor.memory": "900m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


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


class Series(NamedTuple):
    """What is read alike, and so beside each other."""

    topic: Topic
    kind: str
    reader: str
    workers: int


class Cpu(NamedTuple):
    """Seconds of CPU."""

    jvm: float
    python: float
    broker: float


class Sample(NamedTuple):
    """One run: records a second, and CPU microseconds a record."""

    rate: float
    cpu: Cpu


Samples = dict[Series, list[Sample]]
TOPICS = tuple(Topic(size, codec) for size in RECORDS for codec in CODECS)


def fill(broker: RunningBroker, topic: Topic) -> None:
    """Records of text like JSON with keys, in batches of 16 KB, as the Java client makes them; a partition a worker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic.name, max(WORKERS), 1)])[topic.name].result()
    settings = {"compression.type": topic.codec, "batch.size": 16384, "linger.ms": 50}
    settings["enable.idempotence"] = True  # so each record is there once, and few requests wait at a time
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    random = Random(1)
    heads = [
        b'{"id":%d,"customer":"customer-%d","amount":%d,"note":"' % (n, n % 977, n * 7 % 10007) for n in range(5000)
    ]
    values = [head + random.randbytes(topic.size_bytes).hex().encode() for head in heads]
    values = [value[: topic.size_bytes - 2] + b'"}' for value in values]
    for number in range(topic.records):
        while True:
            try:
                producer.produce(
                    topic.name, values[number % 5000], b"key-%05d" % (number % 9999), number % max(WORKERS)
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


class Readers:
    """Whole reads of a topic to nowhere, in a session; each run plans anew."""

    def __init__(self, spark: SparkSession, broker: RunningBroker) -> None:
        self._spark = spark
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "startingOffsets": "earliest"}
        self._where = {
            OURS: ("minibroker", servers),
            CONNECTOR: ("kafka", servers),
            DIRECTORY: ("minibroker", {"path": str(broker.directory / "data"), "startingOffsets": "earliest"}),
        }

    def reads(self, topic: Topic) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Yield each way to read a topic."""
        for reader in self._where:
            yield "batch", reader, partial(self._batch, reader, topic)
        for reader in (OURS, CONNECTOR):
            yield "stream", reader, partial(self._stream, reader, topic)

    def _batch(self, reader: str, topic: Topic) -> None:
        form, options = self._where[reader]
        frame = self._spark.read.format(form).options(**options, subscribe=topic.name).load()
        frame.write.format("noop").mode("overwrite").save()

    def _stream(self, reader: str, topic: Topic) -> None:
        form, options = self._where[reader]
        frame = self._spark.readStream.format(form).options(**options, subscribe=topic.name).load()
        query = frame.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == topic.records


class Meter:
    """Measures runs by the CPU clocks of processes and all that they have started."""

    def __init__(self, jvms: Sequence[int], broker: int) -> None:
        self._jvms = jvms
        self._broker = broker

    def measured(self, run: Callable[[], None], topic: Topic) -> Sample:
        start, cpu = time.perf_counter(), self._cpu()
        run()
        seconds = time.perf_counter() - start
        spent = (1e6 * (after - before) / topic.records for before, after in zip(cpu, self._cpu(), strict=True))
        return Sample(topic.records / seconds, Cpu(*spent))

    def _cpu(self) -> Cpu:
        """The CPU so far of the JVMs and all below them, those included that have ended."""
        found = dict(processes())
        below = set(self._jvms)
        for _ in range(6):  # worker, executor, daemon, Python workers
            below |= {pid for pid, process in found.items() if process.parent in below}
        ours = [found[pid] for pid in below if pid in found]
        java = sum(process.ticks for process in ours if process.is_java)
        python = sum(process.ticks for process in ours if not process.is_java) + sum(each.ended_ticks for each in ours)
        return Cpu(java * TICK_S, python * TICK_S, cpu_seconds(self._broker))


class Process(NamedTuple):
    """What the kernel says of a process: its CPU, and that of its children that have ended, which here are Python's."""

    parent: int
    is_java: bool
    ticks: int
    ended_ticks: int


def processes() -> Iterator[tuple[int, Process]]:
    """Yield all processes of this machine."""
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            name, _, rest = Path("/proc", entry, "stat").read_text().rpartition(")")
        except OSError:  # it has just ended
            continue
        parent, user, system, ended_user, ended_system = (int(rest.split()[field]) for field in (1, 11, 12, 13, 14))
        yield int(entry), Process(parent, name.endswith("(java"), user + system, ended_user + ended_system)


def with_spark(cluster: StandaloneCluster, broker: RunningBroker, topics: Sequence[Topic], runs: int) -> Samples:
    """Read each topic `runs` times by each reader, with one worker and with two."""
    samples: Samples = {}
    jars = ",".join(map(str, spark_connector()))
    for workers in WORKERS:
        settings = {**SETTINGS, **EXECUTORS, "spark.jars": jars, "spark.cores.max": str(workers)}
        spark = session(cluster.url, log_level="error", **settings)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        meter = Meter([gateway.proc.pid, *(worker.pid for worker in cluster.workers.values())], broker.process.pid)
        readers = Readers(spark, broker)
        for _, _, read in readers.reads(topics[0]):
            read()  # which does not count: JVMs compile what they run
        for topic in topics:
            for _ in range(runs):
                for kind, reader, read in readers.reads(topic):
                    samples.setdefault(Series(topic, kind, reader, workers), []).append(meter.measured(read, topic))
        spark.stop()
    return samples


def with_connect(connect: Connect, broker: RunningBroker, topics: Sequence[Topic]) -> Samples:
    """Copy the values of each topic to a file, with one task and with two."""
    meter = Meter([connect.pid], broker.process.pid)
    samples: Samples = {}
    for topic in topics:
        for tasks in WORKERS:
            size_bytes = topic.records * (topic.size_bytes + 1)
            with connect.sink(topic.name, tasks) as sink:
                sink.await_size(1)  # until then its group forms
                here = sink.size()
                sample = meter.measured(partial(sink.await_size, size_bytes), topic)
            done = 1 - here / size_bytes
            cpu = Cpu(*(each / done for each in sample.cpu))
            samples[Series(topic, "sink", CONNECT, tasks)] = [Sample(sample.rate * done, cpu)]
    return samples


def rows_of(samples: Samples) -> Iterator[list[str]]:
    best = {series: max(sample.rate for sample in taken) for series, taken in samples.items()}
    for series, rate in sorted(best.items(), key=lambda each: (TOPICS.index(each[0].topic), *each[0][1:])):
        beside = best.get(series._replace(kind="stream" if series.kind == "stream" else "batch", reader=CONNECTOR))
        alone = best.get(series._replace(workers=1))
        cpu = Cpu(*(median(each) for each in zip(*(sample.cpu for sample in samples[series]), strict=True)))
        if series.reader == CONNECTOR:
            cpu = cpu._replace(python=0.0)  # it has none: what was measured is left from the reader before
        yield [
            *(series.topic.name, series.kind, series.reader, str(series.workers), f"{rate / 1e3:.0f} k"),
            *(f"{rate / other:.2f}" if other else "" for other in (beside, alone)),
            *(f"{each:.2f}" for each in (cpu.jvm + cpu.python, *cpu)),
        ]


@click.command()
@click.option("--runs", default=2, show_default=True, help="How often Spark reads each topic with each reader.")
@click.option("--topic", "names", multiple=True, type=click.Choice([topic.name for topic in TOPICS]))
def main(runs: int, names: tuple[str, ...]) -> None:
    """Compare the readers, and print a table."""
    started, load = time.monotonic(), load_average()
    topics = [topic for topic in TOPICS if not names or topic.name in names]
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of both workers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minibroker-benchmarks-")))
        (folder / "cluster").mkdir()
        broker = stack.enter_context(running_broker(folder))
        for topic in topics:
            fill(broker, topic)
        with running_connect(folder, broker.bootstrap_servers) as connect:
            samples = with_connect(connect, broker, topics)
        with running_cluster(folder / "cluster") as cluster:
            samples |= with_spark(cluster, broker, topics, runs)
    print_table(HEADINGS, list(rows_of(samples)))
    click.echo(f"{time.monotonic() - started:.0f} s; load average {load:.1f} before, {load_average():.1f} after")


if __name__ == "__main__":
    main()
