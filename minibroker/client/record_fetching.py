"""Reads the records of partitions from given offsets on, without a group."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, ErrorReaction
from minibroker.client.cluster_client import Partition, SentRequest
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.records.batch import MAGIC, MAX_RECORD_BYTES, BatchHeader
from minibroker.protocol.records.control import ControlType, decode_control_type
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.record import Record

PARTITION_BYTES: Final = 1 << 20
MAX_BYTES: Final = 50 << 20
LARGEST_FETCH_BYTES: Final = 0x7FFF0000
READ_COMMITTED: Final = 1
WIDER: Final = 4  # from one look back to the next
NEVER: Final = 1 << 63  # no offset is so large
NEWEST_WITH_NAMES: Final = 12  # newer versions have topic ids

_TOPIC: Final = FetchRequest.FetchTopic


class FetchedRecord(NamedTuple):
    """A record and its partition."""

    partition: Partition
    record: Record


class RecordReader:
    """Positions in partitions, which `poll` moves on. `read_committed` leaves out open and aborted transactions.

    Without `ends`, it reads what is added, too. With `ends`, each partition is read up to the offset there, or up to
    where it ends at its first fetch, whichever is first, and is not asked again.
    """

    def __init__(
        self,
        client: Client,
        offsets: Mapping[Partition, int],
        ends: Mapping[Partition, int] | None = None,
        *,
        read_committed: bool = True,
    ) -> None:
        self._read_committed = read_committed
        self._client = client
        self._offsets = dict(offsets)
        self._is_bounded = ends is not None
        self._ends = dict(ends or {})
        self._at_end = {each for each, offset in self._ends.items() if self._offsets.get(each, -1) >= offset}
        self._limited: set[Partition] = set()  # whose first fetch has told the end
        self._fetch_bytes = PARTITION_BYTES

    @property
    def is_at_end(self) -> bool:
        """Return whether the last fetch of every partition has reached its end."""
        return self._at_end == self._offsets.keys()

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offset after the last batch that was read, by partition."""
        return self._offsets

    def add_partitions(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions, too, from these offsets on."""
        self._offsets |= offsets

    def poll(self, wait_ms: int) -> Iterator[FetchedRecord]:
        """Fetch once from each leader, which waits up to `wait_ms` for a record, and yield the records.

        Raises `ClientError`, also for records that are damaged.
        """
        answers = self._client.retry(lambda: self._fetch_answers(wait_ms))
        is_empty = not any(answer.records for answer in answers.values())
        for partition, answer in answers.items():
            before = self._offsets[partition]
            limit = self._find_end_offset(partition, answer)
            try:
                yield from self._iterate_records(partition, answer)
            except KafkaError as error:
                raise ClientError(f"{_format_partition(partition)} at {self._offsets[partition]}: {error}") from None
            if self._offsets[partition] >= limit or is_empty:
                self._at_end.add(partition)
            else:
                self._at_end.discard(partition)
            if answer.records and self._offsets[partition] == before:  # brokers before 0.10.1 cut a large batch
                self._fetch_bytes = min(2 * self._fetch_bytes, LARGEST_FETCH_BYTES)

    def _find_end_offset(self, partition: Partition, answer: Any) -> int:
        """Return the offset up to which to read a partition: its end, or what that was at first if bounded."""
        stable = answer.last_stable_offset  # -1 from brokers that know no transactions
        limit = int(stable if self._read_committed and stable >= 0 else answer.high_watermark)
        if not self._is_bounded:
            return limit
        if partition not in self._limited:
            self._limited.add(partition)
            self._ends[partition] = min(limit, self._ends.get(partition, limit))
        return self._ends[partition]

    def _fetch_answers(self, wait_ms: int) -> dict[Partition, Any]:
        """Return the answer for each partition. Raises `ClientError`; then nothing has changed."""
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for partition in self._offsets:
            if self._is_bounded and partition in self._at_end:
                continue
            by_leader[self._client.find_leader(partition).node_id].append(partition)
        sent = [self._send_fetch(node_id, partitions, wait_ms) for node_id, partitions in by_leader.items()]
        answers = {}
        for request in sent:
            answer = self._client.wait(request)
            self._client.check(answer.error_code, "reading", request.node)
            if answer.throttle_time_ms and not any(
                each.records for topic in answer.responses for each in topic.partitions
            ):
                raise ClientError(f"{self._client.address(request.node)}: reading: throttled", ErrorReaction.RETRY)
            for topic in answer.responses:
                for each in topic.partitions:
                    partition = topic.topic, each.partition_index
                    what = f"reading {_format_partition(partition)} at {self._offsets[partition]}"
                    self._client.check(each.error_code, what, request.node)
                    answers[partition] = each
        return answers

    def _send_fetch(self, node_id: int, partitions: list[Partition], wait_ms: int) -> SentRequest:
        """Send a Fetch for the next records of these partitions to their leader."""
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for topic, index in partitions:
            by_topic[topic].append(
                _TOPIC.FetchPartition(
                    partition=index,
                    current_leader_epoch=self._client.find_leader((topic, index)).epoch,
                    fetch_offset=self._offsets[topic, index],
                    partition_max_bytes=self._fetch_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max(MAX_BYTES, self._fetch_bytes),
            isolation_level=READ_COMMITTED if self._read_committed else 0,
            session_epoch=-1,  # no session
            topics=[_TOPIC(topic=topic, partitions=some) for topic, some in by_topic.items()],
        )
        return self._client.send(request, node_id, highest=NEWEST_WITH_NAMES)

    def _iterate_records(self, partition: Partition, answer: Any) -> Iterator[FetchedRecord]:
        """Yield the records of whole batches, and move the partition's position behind each."""
        data = answer.records or b""
        aborted = AbortedProducers(answer.aborted_transactions if self._read_committed else None)
        for position, header in iterate_batches_in_any_format(data):
            check_batch_or_message(data, position)
            if not aborted.is_aborted_or_control(header, data, position):
                start, end = self._offsets[partition], self._ends.get(partition, NEVER)
                for record in iterate_records_in_any_format(data, position, limit_bytes=MAX_RECORD_BYTES):
                    if start <= record.offset < end:
                        yield FetchedRecord(partition, record)
            self._offsets[partition] = max(self._offsets[partition], header.next_offset)


def read_last_records(
    client: Client,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    count: int,
    *,
    read_committed: bool = True,
) -> list[FetchedRecord]:
    """Return the last records between these offsets, of all partitions together, in the order of their timestamps.

    Offsets have gaps, so it goes further back until there are enough. Raises `ClientError`.
    """
    last: dict[Partition, list[FetchedRecord]] = {partition: [] for partition in ends}
    upper, window = dict(ends), count
    while upper:
        lower = {partition: max(starts[partition], end - window) for partition, end in upper.items()}
        earlier: dict[Partition, deque[FetchedRecord]] = {partition: deque(maxlen=count) for partition in upper}
        reader = RecordReader(client, lower, upper, read_committed=read_committed)
        while not reader.is_at_end:
            for each in reader.poll(0):
                earlier[each.partition].append(each)
        for partition, some in earlier.items():
            last[partition] = [*some, *last[partition]][-count:]
        upper = {each: start for each, start in lower.items() if start > starts[each] and len(last[each]) < count}
        window *= WIDER
    return list(heapq.merge(*last.values(), key=lambda each: each.record.timestamp))[-count:]


class AbortedProducers:
    """The producers whose transactions are aborted, at one batch of a fetch after the other."""

    def __init__(self, transactions: list[Any] | None) -> None:
        self._coming = sorted(((each.first_offset, each.producer_id) for each in transactions or ()), reverse=True)
        self._producers: set[int] = set()

    def is_aborted_or_control(self, header: BatchHeader, data: Any, position: int) -> bool:
        """Return whether consumers skip a batch: control records, or records of an aborted transaction."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._producers.add(self._coming.pop()[1])
        if header.magic < MAGIC:
            return False
        if header.is_control:
            marker = next(iter(iterate_records_in_any_format(data, position)), None)
            if marker is not None and decode_control_type(marker.key) is ControlType.ABORT:
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _format_partition(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
