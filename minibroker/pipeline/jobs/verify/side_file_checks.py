"""Checks that need no batches: `partition.metadata`, and the counts in `aborted-transactions-checkpoint`.

The metadata log has the topics' ids. Without it, the id of most of the topic's partitions counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from minibroker.pipeline.directory.cluster_metadata import METADATA
from minibroker.pipeline.jobs.verify.findings import Problem
from minibroker.protocol.primitives import uuid_text
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    PARTITION_METADATA,
    MalformedCheckpoint,
    TopicPartition,
    aborted_counts_from_text,
    aborted_counts_text,
    topic_id_from_text,
)
from minibroker.storage.names import TRANSACTION_INDEX_SUFFIX, segment_name
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY

METADATA_TOPIC_ID = bytes(15) + b"\x01"  # the same in every cluster


def expected_ids(root: Path, directories: Mapping[TopicPartition, str], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the id of each topic: the `known` one of the metadata log, else that of most partitions."""
    found: dict[str, Counter[bytes]] = {}
    for (topic, _), directory in directories.items():
        topic_id, _ = read_topic_id(root / directory / PARTITION_METADATA)
        if topic_id is not None:
            found.setdefault(topic, Counter())[topic_id] += 1
    most = {topic: ids.most_common(1)[0][0] for topic, ids in found.items()}
    return {**most, **known, METADATA.removesuffix("-0"): METADATA_TOPIC_ID}


def read_topic_id(path: Path) -> tuple[bytes | None, str]:
    """Return the id in a `partition.metadata`, and an error; neither if there is no file."""
    try:
        return topic_id_from_text(path.read_bytes()), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"it cannot be read: {error.strerror or error}"
    except MalformedCheckpoint as error:
        return None, str(error)


def wrong_id(path: Path, expected: bytes | None) -> Iterator[Problem]:
    """Yield what is wrong with a `partition.metadata`."""
    found, unreadable = read_topic_id(path)
    if unreadable:
        yield Problem("partition-metadata", -1, -1, unreadable)
    elif found is not None and expected is not None and found != expected:
        detail = f"the id is {uuid_text(found)}, but the topic has {uuid_text(expected)}"
        yield Problem("partition-metadata", -1, -1, detail)


def wrong_counts(directory: Path, bases: Iterable[int]) -> Iterator[Problem]:
    """Yield where `aborted-transactions-checkpoint` and the `.txnindex` files disagree. Raises `OSError`.

    A file may have more entries: those since the segment was last closed.
    """
    text = (directory / ABORTED_TRANSACTIONS_CHECKPOINT).read_bytes()
    try:
        counts = aborted_counts_from_text(text)
        if text not in (b"", aborted_counts_text(counts)):
            raise MalformedCheckpoint("its rows are malformed or not sorted")
    except MalformedCheckpoint as error:
        yield Problem("checkpoint", -1, -1, str(error))
        return
    known = set(bases)
    for base, (count, crc) in counts.items():
        index = directory / (segment_name(base) + TRANSACTION_INDEX_SUFFIX)
        data = index.read_bytes() if index.exists() else b""
        if base not in known:
            if base > min(known, default=0):
                yield Problem("txnindex-count", -1, base, f"there is no segment {base}")
        elif crc32c(data[: count * TRANSACTION_ENTRY.size]) != crc:
            yield Problem("txnindex-count", -1, base, f"{index.name} has changed within its first {count} entries")
