"""All that a broker serves, read as clients do, and how what two have served differs.

Nothing here tests anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.records.batch import HEADER_BYTES, check_batch, read_header
from minibroker.protocol.records.payload import iterate_records_of_batch
from tests.broker.handlers.fetching import fetch
from tests.broker.harness import Harness

FETCH_BYTES = 700  # so that a log is read in several goes
GROUPS = ("group", "other")
METADATA = "__cluster_metadata-0"  # whose lines in the log are about everything


class Difference(NamedTuple):
    """A difference to what was before. `subject` is what a line in the broker's log must name to report it.

    It is None if no line would do.
    """

    subject: str | None
    what: str


class Contents(NamedTuple):
    """The contents of a partition at one isolation level: records by offset, and the offsets that gave an error.

    `stuck` are those at which a client would wait for ever.
    """

    records: dict[int, tuple[bytes | None, bytes | None]]
    errors: dict[int, str]
    stuck: list[int]


class SeenPartition(NamedTuple):
    """One partition as its clients see it."""

    offsets: tuple[int, int, int]
    epochs: dict[int, int]
    producers: dict[int, tuple[int, int, int]]
    uncommitted: Contents
    committed: Contents


class Seen(NamedTuple):
    """All that is served: topics with id, number of partitions and configs; partitions; committed offsets; quotas."""

    topics: dict[str, tuple[bytes, int, dict[str, str]]]
    partitions: dict[str, SeenPartition]
    groups: dict[str, Any]
    quotas: dict[Any, Any]


def seen_by(harness: Harness) -> Seen:
    """All that this broker serves."""
    image = harness.cluster.image
    topics = {topic.name: (topic.topic_id, len(topic.partitions), topic.overrides) for topic in image.topics.values()}
    partitions = {str(each): _partition(harness, each) for topic in image.topics.values() for each in topic.partitions}
    groups = {group: _committed_offsets(harness, group) for group in GROUPS}
    return Seen(topics, partitions, groups, image.quotas)


def differences(before: Seen, after: Seen) -> Iterator[Difference]:
    """Yield where `after` differs from `before`, but for what clients were given an error for."""
    for name in before.topics.keys() | after.topics.keys():
        had_records = any(
            label.rpartition("-")[0] == name and each.uncommitted.records for label, each in before.partitions.items()
        )
        if before.topics.get(name) != after.topics.get(name):
            subject = None if name not in after.topics and had_records else METADATA
            yield Difference(subject, f"topic {name}: {before.topics.get(name)} became {after.topics.get(name)}")
    if before.quotas != after.quotas:
        yield Difference(METADATA, f"quotas: {before.quotas} became {after.quotas}")
    for group, offsets in before.groups.items():
        if after.groups[group] != offsets and after.groups[group] is not None:
            yield Difference("__consumer_offsets", f"group {group}: {offsets} became {after.groups[group]}")
    for label in before.partitions.keys() & after.partitions.keys():
        for what in _of_partition(before.partitions[label], after.partitions[label]):
            yield Difference(label, what)
        for offset in after.partitions[label].uncommitted.stuck + after.partitions[label].committed.stuck:
            yield Difference(None, f"{label}: a client waits for ever at {offset}")


def _of_partition(before: SeenPartition, after: SeenPartition) -> Iterator[str]:
    if not before.uncommitted.errors and after.offsets != before.offsets:
        yield f"offsets {before.offsets} became {after.offsets}"
    for offset in before.epochs.keys() & after.epochs.keys():
        if after.epochs[offset] != before.epochs[offset]:
            yield f"epoch {before.epochs[offset]} of offset {offset} became {after.epochs[offset]}"
    if after.producers != before.producers:
        yield f"producers {before.producers} became {after.producers}"
    for level in ("uncommitted", "committed"):
        yield from (f"{level}: {what}" for what in _of_contents(getattr(before, level), getattr(after, level)))


def _of_contents(before: Contents, after: Contents) -> Iterator[str]:
    for offset, record in after.records.items():
        if before.records.get(offset) != record:
            yield f"offset {offset} is {record}, and was {before.records.get(offset)}"
    for offset in before.records.keys() - after.records.keys() - after.errors.keys():
        if offset not in after.stuck:
            yield f"offset {offset} is missing, which was {before.records[offset]}"


# --- one partition ------------------------------------------------------------------------------


def _partition(harness: Harness, partition: Partition) -> SeenPartition:
    log = partition.log
    producers = {
        producer_id: (entry.epoch, entry.batches[-1][1] if entry.batches else -1, entry.transaction_first_offset)
        for producer_id, entry in log.producers.iterate_entries()
    }
    uncommitted = _contents(harness, partition, committed=False)
    return SeenPartition(
        (log.log_start_offset, log.high_watermark, log.last_stable_offset),
        {offset: log.epochs.find_epoch_at(offset) for offset in uncommitted.records},
        producers,
        uncommitted,
        _contents(harness, partition, committed=True),
    )


def _contents(harness: Harness, partition: Partition, *, committed: bool) -> Contents:
    contents = Contents({}, {}, [])
    offset = partition.log.log_start_offset
    end = partition.log.last_stable_offset if committed else partition.log.high_watermark
    while offset < end:
        answer = _fetched(harness, partition, offset, committed)
        if answer.error_code != ErrorCode.NONE:
            contents.errors[offset] = ErrorCode(answer.error_code).name
            offset += 1
            continue
        next_offset = _take(contents, bytes(answer.records or b""), offset, answer.aborted_transactions)
        offset = max(next_offset, offset + 1)
    return contents


def _take(contents: Contents, data: bytes, offset: int, aborted: Any) -> int:
    """Take in an answer as a consumer does, which checks each batch; the offset to go on at."""
    waiting = sorted(aborted or (), key=lambda each: each.first_offset)
    skipped: set[int] = set()
    position, next_offset = 0, offset
    while len(data) - position >= HEADER_BYTES and read_header(data, position).size_bytes <= len(data) - position:
        header = read_header(data, position)
        try:
            check_batch(data, position)
            found = list(iterate_records_of_batch(data[position : position + header.size_bytes]))
        except (KafkaError, CorruptBatch):
            contents.errors.update(
                dict.fromkeys(range(next_offset, max(header.next_offset, next_offset + 1)), "client")
            )
            return max(min(header.next_offset, next_offset + 100), next_offset + 1)
        while waiting and waiting[0].first_offset <= header.last_offset:
            skipped.add(waiting.pop(0).producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            for record in found:
                if record.offset >= offset:
                    contents.records[record.offset] = record.key, record.value
        position += header.size_bytes
        next_offset = header.next_offset
    if position == 0:
        contents.stuck.append(offset)
    return next_offset


def _fetched(harness: Harness, partition: Partition, offset: int, committed: bool) -> Any:
    where = partition.topic.name, partition.index
    more = {"partition_max_bytes": FETCH_BYTES, "isolation_level": int(committed)}
    return fetch(harness, {where: offset}, node=partition.leader_id, **more)[where]


def _committed_offsets(harness: Harness, group: str) -> Any:
    """The offsets of a group; None if its coordinator answers with an error."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
    (answer,) = harness.request(request, 9, node=harness.coordinator(group)).groups
    if answer.error_code != ErrorCode.NONE:
        return None
    return sorted(
        (topic.name, each.partition_index, each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
    )
