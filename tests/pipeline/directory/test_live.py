"""The directory of a running broker is tailed while a transactional producer writes to it: each record once.

The producer is librdkafka's. What a stopped broker has left is read in `test_directory_source.py`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition, TopicSelection
from tests.running import running_broker

PARTITION = TopicPartition("tailed", 0)
KEYS = ReadRequest("records", ("key",), verify_crc=True)
TRANSACTIONS = 60
TIMEOUT_S = 30


def produce(bootstrap_servers: str, committed: list[bytes]) -> None:
    """Transactions of a hundred records, every third of which is aborted."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "writer", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    for number in range(TRANSACTIONS):
        keys = [b"%d of %d" % (each, number) for each in range(100)]
        producer.begin_transaction()
        for key in keys:
            producer.produce(PARTITION.topic, key * 20, key)
        if number % 3:
            producer.commit_transaction(TIMEOUT_S)
            committed += keys
        else:
            producer.abort_transaction(TIMEOUT_S)


def test_records_committed_during_reads_are_read_once(tmp_path: Path) -> None:
    committed: list[bytes] = []
    found: list[bytes] = []
    with running_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        config = {"internal.segment.bytes": "100000", "index.interval.bytes": "5000", "preallocate": "true"}
        for future in admin.create_topics([NewTopic(PARTITION.topic, 1, 1, config=config)]).values():
            future.result(TIMEOUT_S)
        writer = threading.Thread(target=produce, args=(broker.bootstrap_servers, committed))
        writer.start()
        selection = TopicSelection(topics=(PARTITION.topic,))
        source = DirectorySource(str(tmp_path / "data"), selection, "read_committed", split_bytes=20_000)
        start, is_over = 0, False
        while not is_over:
            is_over = not writer.is_alive()  # then all that there will be is there
            end = source.find_bounds([PARTITION])[PARTITION].latest
            for split in source.make_splits([OffsetRange(PARTITION, start, end)], 3):
                for rows in source.read_split(split, KEYS):
                    found += rows.column("key").to_pylist()
            start = end
        assert len(list((tmp_path / "data" / "tailed-0").glob("*.log"))) > 3
    assert found == committed
    assert len(found) == TRANSACTIONS * 100 * 2 // 3
