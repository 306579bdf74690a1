"""Reads the topics' formats and codecs from the cluster's metadata, and updates them after a rewriting.

It appends to the metadata log by the storage engine.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from minibroker.pipeline.directory.cluster_metadata import METADATA, Configs, read_metadata
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.metadata_records import METADATA_TOPIC, TOPIC_RESOURCE, ConfigRecord
from minibroker.protocol.records.batch import MAGIC, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.metadata_values import encode_metadata_record
from minibroker.protocol.records.record import Record
from minibroker.storage.environment import Environment
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import Checkpointed, LogDirectoryError, open_log

FORMAT, CODEC, ELIDE = "message.format.version", "compression.type", "record.attributes.elide"
VERSION = "3.0"  # which stands for all with format 2

_ANY_LEVEL = 0  # of metadata.version: a ConfigRecord has the same version at each


class Change(NamedTuple):
    """A config of a topic that gets another value."""

    topic: str
    name: str
    value: str


def list_changes(configs: Configs, topics: Iterable[str], settings: RewriteSettings) -> list[Change]:
    """Return the configs that the rewritten topics need and do not have yet.

    Later appends follow the configs, so a topic of an old format or with elided attributes needs them. A codec is set
    only if one was set before: by default producers choose.
    """
    found: list[Change] = []
    for topic in topics:
        known = configs.get(topic, {})
        wanted: dict[str, str] = {}
        if parse_message_format(known.get(FORMAT, VERSION)) < MAGIC:
            wanted[FORMAT] = VERSION
        if settings.codec is not None and known.get(CODEC, "producer") != "producer":
            wanted[CODEC] = "uncompressed" if settings.codec == Compression.NONE else settings.codec.name.lower()
        if settings.elide or (known.get(ELIDE) == "true" and settings.elide is False):
            wanted[ELIDE] = "true" if settings.elide else "false"
        found += [Change(topic, name, value) for name, value in wanted.items() if known.get(name) != value]
    return found


def parse_message_format(version: str) -> int:
    """Return the message format of a `message.format.version`."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return MAGIC if parts >= [0, 11] else 1 if parts >= [0, 10] else 0


def update_configs(
    target: str, topics: Iterable[str], settings: RewriteSettings, *, is_clean: bool
) -> tuple[list[Change], bool]:
    """Update the configs in the log directory `target`. Return the changes, and whether they were made.

    They are not made if there is no metadata log (`metadata.log.dir` may be another directory), or if other voters
    have copies of it. Raises `RewriteError`.
    """
    directory = f"{target}/{METADATA}"
    if not os.path.exists(directory):
        return list_changes({}, topics, settings), False
    try:
        known = read_metadata(target)
        if known.unreadable or (known.is_torn and is_clean):
            raise RewriteError(f"{directory} cannot be used: parts of it cannot be read")
        needed = list_changes(known.configs, topics, settings)
        if needed and len(known.voters) <= 1:
            _append_config_changes(directory, needed, is_clean)
    except (KafkaError, LogDirectoryError, OSError) as error:
        raise RewriteError(f"{directory} cannot be used: {error}") from error
    return needed, len(known.voters) <= 1


def _append_config_changes(directory: str, needed: Iterable[Change], is_clean: bool) -> None:
    """Append the changes to the metadata log, after what a crash has left behind the end is cut off."""
    environment = Environment(Disk(), get_now_ms, schedule=lambda delay_ms, callback: None)
    log = open_log(environment, directory, (METADATA_TOPIC, 0), LogSettings(), Checkpointed(clean=is_clean))
    records = [Record(0, get_now_ms(), None, _encode_change(change), ()) for change in needed]
    batch = memoryview(build_batch(records))
    log.append(batch, [read_header(batch)], log.leader_epoch)
    log.close()


def get_now_ms() -> int:
    """Return the wall clock's time in ms since 1970."""
    return time.time_ns() // 1_000_000


def _encode_change(change: Change) -> bytes:
    topic, name, value = change
    record = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
    return encode_metadata_record(record, _ANY_LEVEL)
