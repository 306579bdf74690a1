"""Kafka's small text files: offset and leader epoch checkpoints, `partition.metadata`, `meta.properties`.

They are formatted and parsed here, byte for byte as Kafka writes them, but not read or written.

    <offset checkpoint>            leader-epoch-checkpoint      partition.metadata
    0                version       0         version            version: 0
    2                rows          1         rows               topic_id: AAAAAAAAAAAAAAAAAAAAAQ
    orders 0 17                    4 120
    orders 1 0                     <epoch> <start offset>
    <topic> <partition> <offset>
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence

CHECKPOINT_VERSION = 0

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
ABORTED_TRANSACTIONS_CHECKPOINT = "aborted-transactions-checkpoint"  # our own; Kafka ignores it
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

TopicPartition = tuple[str, int]


class MalformedCheckpoint(ValueError):
    """A text that Kafka could not have written. The message says what is wrong in which line."""


def format_checkpoint(rows: Sequence[str]) -> bytes:
    """Return a checkpoint of these rows: version, number of rows, rows, one on each line."""
    return "\n".join((str(CHECKPOINT_VERSION), str(len(rows)), *rows, "")).encode()


def parse_checkpoint(text: bytes, columns: int) -> list[list[str]]:
    """Parse a checkpoint into rows, each of `columns` words. Raises `MalformedCheckpoint`.

    An empty file has no rows: Kafka creates its checkpoints before it has anything to write.
    """
    if not text:
        return []
    lines = _decode_text(text).splitlines()
    if len(lines) < 2 or lines[0] != str(CHECKPOINT_VERSION):
        raise MalformedCheckpoint(f"the first line is not the version {CHECKPOINT_VERSION}")
    if lines[1] != str(len(lines) - 2):
        raise MalformedCheckpoint(f"{lines[1]!r} rows are announced, {len(lines) - 2} are there")
    rows = [line.split() for line in lines[2:]]
    for number, row in enumerate(rows, 3):
        if len(row) != columns:
            raise MalformedCheckpoint(f"line {number} has {len(row)} words, not {columns}")
    return rows


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint. Its rows are sorted, so that equal offsets give equal files."""
    return format_checkpoint(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    )


def parse_offset_checkpoint(text: bytes) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint into offsets by (topic, partition). Raises `MalformedCheckpoint`."""
    return {
        (topic, _parse_number(partition)): _parse_number(offset)
        for topic, partition, offset in parse_checkpoint(text, columns=3)
    }


def format_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return a `leader-epoch-checkpoint` of these rows (epoch, start offset), oldest first."""
    return format_checkpoint([f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def parse_leader_epochs(text: bytes) -> list[tuple[int, int]]:
    """Parse a `leader-epoch-checkpoint` into (epoch, start offset) rows. Raises `MalformedCheckpoint`."""
    return [
        (_parse_number(epoch), _parse_number(start_offset)) for epoch, start_offset in parse_checkpoint(text, columns=2)
    ]


def format_aborted_counts(counts: Mapping[int, tuple[int, int]]) -> bytes:
    """Return an `aborted-transactions-checkpoint` of (number of `.txnindex` entries, their CRC-32C) by base offset."""
    return format_checkpoint([f"{base_offset} {count} {crc}" for base_offset, (count, crc) in sorted(counts.items())])


def parse_aborted_counts(text: bytes) -> dict[int, tuple[int, int]]:
    """Parse an `aborted-transactions-checkpoint`, as `format_aborted_counts` takes it. Raises `MalformedCheckpoint`."""
    rows = parse_checkpoint(text, columns=3)
    return {_parse_number(base_offset): (_parse_number(count), _parse_number(crc)) for base_offset, count, crc in rows}


def format_partition_metadata(topic_id: bytes) -> bytes:
    """Return a `partition.metadata`, which has no newline at its end. `topic_id` has 16 bytes."""
    return b"version: 0\ntopic_id: " + urlsafe_b64encode(topic_id).rstrip(b"=")


def parse_topic_id(text: bytes) -> bytes:
    """Return the topic id, 16 bytes, of a `partition.metadata`. Raises `MalformedCheckpoint`."""
    lines = dict(line.split(": ", 1) for line in _decode_text(text).splitlines() if ": " in line)
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise MalformedCheckpoint("it does not contain version 0 and a topic_id")
    try:
        topic_id = urlsafe_b64decode(lines["topic_id"].strip() + "==")
    except ValueError as error:
        raise MalformedCheckpoint(f"topic_id: {error}") from None
    if len(topic_id) != 16:
        raise MalformedCheckpoint(f"topic_id has {len(topic_id)} bytes, not 16")
    return topic_id


def format_properties(values: Mapping[str, str], now_ms: int) -> bytes:
    """Return a Java properties file: two comment lines, of which the second has the time, then the values.

    The values must not need Java's escapes. Ids and numbers never do.
    """
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    return "\n".join(("#", f"#{stamp}", *(f"{key}={value}" for key, value in values.items()), "")).encode()


def parse_properties(text: bytes) -> dict[str, str]:
    """Parse a Java properties file without escapes or continued lines. Raises `MalformedCheckpoint`."""
    values: dict[str, str] = {}
    for number, line in enumerate(_decode_text(text).splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise MalformedCheckpoint(f"line {number} is not key=value")
        values[key.strip()] = value.strip()
    return values


def _decode_text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise MalformedCheckpoint("it is not text") from None


def _parse_number(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise MalformedCheckpoint(f"{word!r} is not a number") from None
