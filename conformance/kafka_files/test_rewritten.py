"""What `minibroker pipeline rewrite` makes of a directory, Apache Kafka's or ours, Apache Kafka serves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.kafka_files.conftest import Brokers, Written, complaints
from conformance.kafka_files.contents import contents
from conformance.kafka_files.scenario import COMMITTED, append, committed_offsets, write_again
from conformance.kafka_files.test_there_and_back import objections
from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.protocol.records.compression import Compression

# Whose directory is rewritten, and how. Both brokers write the same formats, so one directory is enough for each way.
REWRITTEN = {
    "zstd in large batches": ("kafka", RewriteSettings(Compression.ZSTD, batch_bytes=65536)),
    "uncompressed in small batches": ("ours", RewriteSettings(Compression.NONE, batch_bytes=500)),
    "lz4": ("kafka", RewriteSettings(codec=Compression.LZ4, level=12)),
}


@pytest.mark.parametrize(("whose", "settings"), REWRITTEN.values(), ids=REWRITTEN)
def test_a_directory_rewritten_by_the_pipeline_is_served_by_kafka_and_then_minibroker(
    whose: str,
    settings: RewriteSettings,
    kafka_written: dict[str, Written],
    our_written: dict[str, Written],
    brokers: Brokers,
    tmp_path: Path,
) -> None:
    before = (kafka_written if whose == "kafka" else our_written)["stopped"]
    logs = tmp_path / "logs"
    report = rewrite_directory(str(before.path), str(logs), settings)
    assert report.total.lost_bytes == 0
    with brokers.kafka(logs) as kafka:
        assert contents(kafka.bootstrap_servers) == before.contents, "configs included"
        assert committed_offsets(kafka.bootstrap_servers) == COMMITTED
        append(kafka.bootstrap_servers, "snappy", idempotent=True)
        write_again(kafka.bootstrap_servers)
        longer = contents(kafka.bootstrap_servers)
        kafka.stop()
        assert objections(kafka) == []
    with brokers.minibroker(logs) as broker:
        assert contents(broker.bootstrap_servers) == longer
        append(broker.bootstrap_servers, "gzip", idempotent=True)
        assert complaints(broker) == []
