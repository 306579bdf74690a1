"""Which topics are compacted, by the metadata log of the directory."""

from __future__ import annotations

from pathlib import Path

from minibroker.pipeline.jobs.verify.policies import compacted_topics
from minibroker.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

ALWAYS = {"__consumer_offsets", "__transaction_state"}


def config(topic: str, value: str | None, name: str = "cleanup.policy") -> bytes:
    message = ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)
    return bytes((1, 4, 0)) + bytes(message.encode(0))


def topic(name: str) -> bytes:
    return bytes((1, 2, 0)) + bytes(TopicRecord(name=name, topic_id=bytes(16)).encode(0))


def metadata(directory: Path, *values: bytes, name: str = f"{0:020d}.log") -> Path:
    (directory / "__cluster_metadata-0").mkdir(exist_ok=True)
    batches = b"".join(bytes(build_batch([Record(timestamp=1, value=value)])) for value in values)
    (directory / "__cluster_metadata-0" / name).write_bytes(batches)
    return directory


def test_a_directory_without_metadata_tells_of_the_coordinators_topics_only(tmp_path: Path) -> None:
    assert compacted_topics(tmp_path) == ALWAYS


def test_the_newest_policy_counts(tmp_path: Path) -> None:
    values = (
        config("a", "compact"), config("b", "delete"), config("c", "compact,delete"), config("d", "compact"),
        config("d", None), config("e", "compact", "other.policy"), config("f", "compact"), topic("f"),
    )  # fmt: skip
    assert compacted_topics(metadata(tmp_path, *values)) == {"a", "c"} | ALWAYS


def test_a_snapshot_of_the_metadata_counts_and_garbage_does_not(tmp_path: Path) -> None:
    metadata(tmp_path, config("a", "compact"), config("b", "compact"), name=f"{7:020d}-{1:010d}.checkpoint")
    metadata(tmp_path, config("b", "delete"), bytes((1, 4, 0, 2, 99)), b"", bytes((1, 99, 0, 5)))
    assert compacted_topics(tmp_path) == {"a"} | ALWAYS
