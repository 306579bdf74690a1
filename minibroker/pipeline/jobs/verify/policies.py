"""Finds the compacted topics of a log directory: those with `cleanup.policy` in its metadata log.

value of a metadata record   varint frame version   varint api key (2: topic, 4: config)   varint version   fields
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from minibroker.pipeline.jobs.verify.log_blocks import LogFile
from minibroker.pipeline.jobs.verify.record_checks import Unreadable, payload_of, read_records
from minibroker.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import MAGIC

METADATA = "__cluster_metadata-0"
ALWAYS = ("__consumer_offsets", "__transaction_state")
TOPIC_RESOURCE = 2
_TOPIC_KEY, _CONFIG_KEY = 2, 4


def compacted_topics(root: Path) -> set[str]:
    """Return the names of the topics with `compact` in their `cleanup.policy`. Raise `OSError`.

    Skip parts of the metadata log that cannot be read: they become findings elsewhere.
    """
    found = set(ALWAYS)
    for key, value in _metadata_values(root / METADATA):
        try:
            if key == _TOPIC_KEY:
                found.discard(TopicRecord.decode(value, 0).name)
                continue
            config = ConfigRecord.decode(value, 0)
        except MalformedMessage:
            continue
        if (config.resource_type, config.name) == (TOPIC_RESOURCE, "cleanup.policy"):
            if "compact" in (config.value or ""):
                found.add(config.resource_name)
            else:
                found.discard(config.resource_name)
    return found | set(ALWAYS)


def metadata_ids(root: Path) -> dict[str, bytes]:
    """Return the last known id of each topic in the metadata log. Raise `OSError`."""
    found = {}
    for key, value in _metadata_values(root / METADATA):
        if key == _TOPIC_KEY:
            with suppress(MalformedMessage):
                record = TopicRecord.decode(value, 0)
                found[record.name] = record.topic_id
    return found


def _metadata_values(directory: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (api key, fields) of topics and configs, the oldest first: the newest snapshot, then the whole log."""
    if not directory.is_dir():
        return
    snapshots = sorted(directory.glob("*.checkpoint"))[-1:]
    for path in (*snapshots, *sorted(directory.glob("*.log"))):
        for value in _values(path):
            if len(value) > 3 and value[1] in (_TOPIC_KEY, _CONFIG_KEY) and value[2] == 0:
                yield value[1], value[3:]


def _values(path: Path) -> Iterator[bytes]:
    file = LogFile(str(path))
    try:
        for block in file.blocks():
            is_data = block.sound & (block.headers.magic == MAGIC) & ~block.headers.is_control
            for index in np.flatnonzero(is_data).tolist():
                try:
                    records = list(read_records(payload_of(block, index), block.headers.header(index)))
                except Unreadable:
                    continue
                yield from (record.value for record in records if record.value)
    finally:
        file.close()
