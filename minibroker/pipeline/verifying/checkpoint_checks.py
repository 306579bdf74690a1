"""Checks the small files of a directory and its partitions, which need no batches.

Checkpoints are read strictly, and as far as they can be read; `storage/checkpoints/checkpoint_texts.py` draws them. The
id in `partition.metadata` is compared with that in the metadata log; without it, the id of most of the topic's
partitions counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import minibroker.storage.checkpoints.checkpoint_texts as texts
from minibroker.pipeline.directory.cluster_metadata import ClusterMetadata
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import EpochRun
from minibroker.protocol.messages.metadata_records import METADATA_TOPIC, METADATA_TOPIC_ID
from minibroker.protocol.primitives import format_uuid, parse_uuid
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.directories.log_directory import is_directory_id
from minibroker.storage.names import TRANSACTION_INDEX_SUFFIX, make_segment_name
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY

OFFSET_CHECKPOINTS = (
    texts.RECOVERY_POINT_CHECKPOINT,
    texts.LOG_START_OFFSET_CHECKPOINT,
    texts.REPLICATION_OFFSET_CHECKPOINT,
    texts.CLEANER_OFFSET_CHECKPOINT,
)


def read_offsets(path: str) -> tuple[dict[texts.TopicPartition, int], list[Problem]]:
    """Return the offsets of a checkpoint by (topic, partition), and its problems. Raises `OSError`."""
    rows, problem = _read_checkpoint_rows(path, 3)
    offsets: dict[texts.TopicPartition, int] = {}
    for topic, partition, offset in rows:
        key = topic, _parse_checkpoint_number(partition)
        if min(key[1], _parse_checkpoint_number(offset)) < 0:
            problem = problem or f"{topic} {partition} {offset}: no partition and offset"
        elif key in offsets:
            problem = problem or f"{topic} {partition} is listed twice"
        else:
            offsets[key] = _parse_checkpoint_number(offset)
    return offsets, [Problem("checkpoint", -1, -1, problem)] if problem else []


def read_epochs(path: str) -> tuple[list[tuple[int, int]], list[Problem]]:
    """Return the (epoch, start offset) rows of `leader-epoch-checkpoint` as far as they rise, and its problems."""
    rows, problem = _read_checkpoint_rows(path, 2)
    entries: list[tuple[int, int]] = []
    for row in rows:
        epoch, start = _parse_checkpoint_number(row[0]), _parse_checkpoint_number(row[1])
        before = entries[-1] if entries else (-1, -1)
        if epoch <= before[0] or start <= before[1]:
            problem = problem or f"epoch {row[0]} at {row[1]} after epoch {before[0]} at {before[1]}"
        else:
            entries.append((epoch, start))
    return entries, [Problem("leader-epoch-checkpoint", -1, -1, problem)] if problem else []


def find_wrong_epochs(
    entries: list[tuple[int, int]], runs: list[EpochRun], log_start: int, end_offset: int, *, stopped: bool
) -> Iterator[Problem]:
    """Yield where `leader-epoch-checkpoint` and the batches disagree. It need not have epochs from before `log_start`.

    Unless the broker `stopped`, that may not be in its checkpoint yet: records are removed from the epochs first.
    """
    for epoch, start in entries:
        if start > end_offset:
            yield Problem(
                texts.LEADER_EPOCH_CHECKPOINT,
                -1,
                start,
                f"epoch {epoch} begins at {start}, the log ends at {end_offset}",
            )
    for run in runs:
        if not entries:
            yield Problem(texts.LEADER_EPOCH_CHECKPOINT, -1, run.first_offset, f"epoch {run.epoch} is missing")
            return
        for offset in (run.first_offset, run.last_offset):
            known = [epoch for epoch, start in entries if start <= offset]
            if not known and offset >= log_start:
                detail = f"its first epoch begins at {entries[0][1]}, and the log has epoch {run.epoch} at {offset}"
                yield Problem(texts.LEADER_EPOCH_CHECKPOINT if stopped else "leader-epoch-late", -1, offset, detail)
                break
            if known and known[-1] != run.epoch:
                detail = f"it has epoch {known[-1]} at {offset}, the batch there {run.epoch}"
                yield Problem(texts.LEADER_EPOCH_CHECKPOINT, -1, offset, detail)
                break


def _read_checkpoint_rows(path: str, columns: int) -> tuple[list[list[str]], str]:
    """Return the rows, and what is wrong. An empty file has no rows: Kafka creates it before it has any."""
    try:
        text = DISK.read_whole(path).decode("ascii")
    except UnicodeDecodeError:
        return [], "it is not text"
    if not text:
        return [], ""
    lines = text.removesuffix("\n").split("\n")
    if lines[0] != "0":
        return [], f"version {lines[0][:20]!r}"
    rows = [line.split(" ") for line in lines[2:]]
    usable = [row for row in rows if len(row) == columns]
    if len(lines) < 2 or lines[1] != str(len(rows)):
        return usable, f"{''.join(lines[1:2])[:20]!r} is the count, but there are {len(rows)} rows"
    if not text.endswith("\n"):
        return usable, "it ends within a line"
    return usable, "" if len(usable) == len(rows) else f"a row without {columns} words"


def _parse_checkpoint_number(word: str) -> int:
    """Return the number, or -1 if it is none."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else -1


def find_expected_topic_ids(
    root: str, directories: Mapping[texts.TopicPartition, str], known_ids: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return each topic's id: from `known_ids`, of the metadata log, or else the one that most partitions have."""
    found: dict[str, Counter[bytes]] = {}
    for (topic, _), directory in directories.items():
        topic_id, _ = read_topic_id(f"{root}/{directory}/{texts.PARTITION_METADATA}")
        if topic_id is not None:
            found.setdefault(topic, Counter())[topic_id] += 1
    most = {topic: ids.most_common(1)[0][0] for topic, ids in found.items()}
    return {**most, **known_ids, METADATA_TOPIC: METADATA_TOPIC_ID}


def read_topic_id(path: str) -> tuple[bytes | None, str]:
    """Return the id in a `partition.metadata`, and an error; neither if there is no file."""
    try:
        return texts.parse_topic_id(DISK.read_whole(path)), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"it cannot be read: {error.strerror or error}"
    except texts.MalformedCheckpoint as error:
        return None, str(error)


def find_wrong_topic_id(path: str, expected: bytes | None) -> Iterator[Problem]:
    """Yield what is wrong with a `partition.metadata`."""
    found, unreadable = read_topic_id(path)
    if unreadable:
        yield Problem("partition-metadata", -1, -1, unreadable)
    elif found is not None and expected is not None and found != expected:
        detail = f"the id is {format_uuid(found)}, but the topic has {format_uuid(expected)}"
        yield Problem("partition-metadata", -1, -1, detail)


def find_wrong_node_identity(root: str, metadata: ClusterMetadata) -> Iterator[Problem]:
    """Yield what is wrong with the `meta.properties` of a log directory. Raises `OSError`.

    A directory without any file of a broker's, such as a copy of some partitions, has none.
    """
    path = f"{root}/{texts.META_PROPERTIES}"
    if not DISK.exists(path):
        if metadata.ids or all(DISK.exists(f"{root}/{name}") for name in OFFSET_CHECKPOINTS):
            yield Problem("meta-properties", -1, -1, "it is missing: Kafka does not start on a directory without it")
        return
    try:
        values = texts.parse_properties(DISK.read_whole(path))
    except texts.MalformedCheckpoint as error:
        yield Problem("meta-properties", -1, -1, str(error))
        return
    id_key = "broker.id" if values.get("version") == "0" else "node.id"  # 0: of Kafka with ZooKeeper
    directory_id = values.get("directory.id")
    lacking = [key for key in ("version", "cluster.id", id_key) if not values.get(key)]
    if lacking:
        yield Problem("meta-properties", -1, -1, f"it has no {', '.join(lacking)}")
    elif _parse_checkpoint_number(values[id_key]) < 0:
        yield Problem("meta-properties", -1, -1, f"{id_key}={values[id_key]} is not a number")
    elif directory_id is not None and not is_directory_id(directory_id):
        yield Problem("meta-properties", -1, -1, f"directory.id={directory_id} is not an id of 22 characters")
    else:
        owner = _explain_other_owner(_parse_checkpoint_number(values[id_key]), directory_id, metadata)
        if owner:
            yield Problem("meta-properties", -1, -1, owner)


def _explain_other_owner(node_id: int, directory_id: str | None, metadata: ClusterMetadata) -> str:
    """Return why the ids are not those of a broker that has registered in the metadata log; empty if they may be.

    A controller registers no directories, and neither did a Kafka before 3.7.
    """
    if metadata.brokers and node_id not in metadata.brokers | metadata.voters:
        return f"it is of another cluster: the metadata log has no node {node_id}"
    if node_id not in metadata.brokers or directory_id is None or not metadata.directories:
        return ""
    if parse_uuid(directory_id) in metadata.directories:
        return ""
    return f"it is of another cluster or node: no broker in the metadata log has directory.id={directory_id}"


def find_wrong_aborted_counts(directory: str, bases: Iterable[int]) -> Iterator[Problem]:
    """Yield where `aborted-transactions-checkpoint` and the `.txnindex` files disagree. Raises `OSError`.

    A file may have more entries: those since the segment was last closed.
    """
    text = DISK.read_whole(f"{directory}/{texts.ABORTED_TRANSACTIONS_CHECKPOINT}")
    try:
        counts = texts.parse_aborted_counts(text)
        if text not in (b"", texts.format_aborted_counts(counts)):
            raise texts.MalformedCheckpoint("its rows are malformed or not sorted")
    except texts.MalformedCheckpoint as error:
        yield Problem("checkpoint", -1, -1, str(error))
        return
    known = set(bases)
    for base, (count, crc) in counts.items():
        index = make_segment_name(base) + TRANSACTION_INDEX_SUFFIX
        data = DISK.read_whole(f"{directory}/{index}") if DISK.exists(f"{directory}/{index}") else b""
        if base not in known:
            if base > min(known, default=0):
                yield Problem("txnindex-count", -1, base, f"there is no segment {base}")
        elif crc32c(data[: count * TRANSACTION_ENTRY.size]) != crc:
            yield Problem("txnindex-count", -1, base, f"{index} has changed within its first {count} entries")
