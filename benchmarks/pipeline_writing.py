"""How fast a task of the pipeline writes rows of Arrow to a running broker, beside librdkafka with an object a record.

    python benchmarks/pipeline_writing.py

A row of the table is the best of some runs, to a topic of its own. CPU is that of the task's process alone, wall also
what it waits for the broker. With `exactly once` a batch is the whole of it: the transactional id taken over, the
marker read, rows and marker written, the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.cli.shared import print_table
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from servers import minibroker

RUNS = 3
PARTITIONS = 4
BATCH_RECORDS = 10_000  # what Spark hands over at a time
SIZES = {100: 1_000_000, 1000: 200_000}
CODECS = ("none", "lz4", "zstd")
START_MS = 1_700_000_000_000
TOPICS = count()
HEAD = ("records of", "how", "CPU", "wall")

Seconds = tuple[float, float]


def rows_of(size_bytes: int) -> pa.RecordBatch:
    """Rows with keys and words in their values, of `size_bytes` each."""
    random = np.random.default_rng(1)
    words = [bytes(word) for word in random.integers(97, 123, (500, 7), dtype=np.uint8)]
    keys = [b"key-%06d" % number for number in range(BATCH_RECORDS)]
    chosen = random.integers(0, len(words), (BATCH_RECORDS, size_bytes // 8 + 1))
    values = [b" ".join([words[word] for word in row])[: size_bytes - 10] for row in chosen]
    times = pa.array((START_MS + np.arange(BATCH_RECORDS)) * 1000, pa.timestamp("us", "UTC"))
    return pa.record_batch({"key": pa.array(keys), "value": pa.array(values), "timestamp": times})


def ours(settings: SinkSettings, rows: pa.RecordBatch, batches: int) -> None:
    """One task at least once."""
    delivery.write_at_least_once(settings, (rows for _ in range(batches)), 0)


def ours_once(settings: SinkSettings, rows: pa.RecordBatch, batches: int) -> None:
    """One task exactly once, and the commit."""
    task = delivery.write_exactly_once(settings, (rows for _ in range(batches)), settings.topic or "", 0, 0)
    assert task.transaction is not None
    delivery.commit_transactions(settings, [task.transaction])


def librdkafka(settings: SinkSettings, rows: pa.RecordBatch, batches: int) -> None:
    """confluent-kafka with the same guarantees: idempotent, and acknowledged by all."""
    config = {"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
    codec = settings.batches.codec.name.lower()
    producer = Producer({**config, "compression.type": codec, "queue.buffering.max.messages": 100_000})
    for _ in range(batches):
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        times = (rows.column("timestamp").cast(pa.int64()).to_numpy() // 1000).tolist()
        for key, value, at in zip(keys, values, times, strict=True):
            while True:
                try:
                    producer.produce(settings.topic or "", value, key, timestamp=at)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(120) == 0


WRITERS: dict[str, Callable[[SinkSettings, pa.RecordBatch, int], None]] = {
    "at least once": ours,
    "exactly once": ours_once,
    "librdkafka": librdkafka,
}


def best(servers: str, writer: str, codec: str, rows: pa.RecordBatch, batches: int) -> Seconds:
    """CPU and wall seconds of the best runs."""
    admin, found = AdminClient({"bootstrap.servers": servers}), []
    for _ in range(RUNS):
        topic = f"{writer.replace(' ', '-')}-{next(TOPICS)}"
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})])[topic].result()
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
        once = {"delivery": "exactly-once"} if writer == "exactly once" else {}
        settings = parse_settings(options | once)
        cpu, wall = time.process_time(), time.perf_counter()
        WRITERS[writer](settings, rows, batches)
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
        admin.delete_topics([topic])[topic].result()
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def main() -> None:
    table = []
    with minibroker() as server:
        servers = f"{server.host}:{server.port}"
        for size_bytes, records in SIZES.items():
            rows, batches = rows_of(size_bytes), records // BATCH_RECORDS
            for codec in CODECS:
                for writer in WRITERS:
                    seconds = best(servers, writer, codec, rows, batches)
                    millions = [records / each / 1e6 for each in seconds]
                    speeds = [f"{each:.2f} M, {each * size_bytes:.0f} MB/s" for each in millions]
                    table.append((f"{size_bytes} B", f"{writer}, {codec}", *speeds))
    print_table(HEAD, table)


if __name__ == "__main__":
    main()
