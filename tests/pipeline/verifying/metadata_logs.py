"""Metadata logs for tests: records of topics and configs, as Kafka frames them."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record


def config(topic: str, value: str | None, name: str = "cleanup.policy") -> bytes:
    message = ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)
    return bytes((1, 4, 0)) + bytes(message.encode(0))


def topic(name: str) -> bytes:
    return bytes((1, 2, 0)) + bytes(TopicRecord(name=name, topic_id=bytes(16)).encode(0))


def metadata(directory: Path, *values: bytes, name: str = f"{0:020d}.log") -> Path:
    (directory / "__cluster_metadata-0").mkdir(exist_ok=True)
    batches = b"".join(bytes(build_batch([Record(index, 1, None, each)])) for index, each in enumerate(values))
    (directory / "__cluster_metadata-0" / name).write_bytes(batches)
    return directory
