"""The log of a running broker: its partitions, their bounds, and the rows of offset ranges.

The bytes of a range come from its leader, one request ahead of the decoder. `client` connects and asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from minibroker.client.client_errors import ClientError, ErrorReaction
from minibroker.client.cluster_client import SentRequest
from minibroker.client.connection_settings import RemainingSettings, pop_number
from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets
from minibroker.pipeline.brokers.client import Client, make_client_settings, translate_errors
from minibroker.pipeline.decode.batch_headers import measure_whole_batches
from minibroker.pipeline.decode.decoder import AbortedRanges, make_decoder
from minibroker.pipeline.log_source import (
    Bounds,
    DataLoss,
    OffsetRange,
    OptionError,
    ReadRequest,
    Split,
    TopicPartition,
    TopicSelection,
)
from minibroker.pipeline.planning import divide_large_ranges
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest

FIRST_FETCH_BYTES: Final = 1 << 20  # until the average size of an offset is known
SPARE_BYTES: Final = 64 << 10
MAX_FETCH_BYTES: Final = 0x7FFF0000
MAX_WAIT_MS: Final = 500
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True)
class FetchSettings:
    """How much to fetch at once, by Kafka's settings. The defaults are larger than a consumer's."""

    partition_bytes: int = 8 << 20
    max_bytes: int = 50 << 20

    @classmethod
    def pop_from_settings(cls, settings: dict[str, str]) -> Self:
        """Return these settings, after removing them from `settings`. Raises `OptionError`."""
        with translate_errors():
            return cls(
                pop_number(settings, "max.partition.fetch.bytes", cls.partition_bytes, 1),
                pop_number(settings, "fetch.max.bytes", cls.max_bytes, 1),
            )


class FetchedBatches(NamedTuple):
    """Whole batches, and the aborted transactions among them: (producer id, first offset).

    Records before `start` must be left out: they are before the range, or were lost in the meantime.
    """

    data: memoryview
    place: str
    aborted: tuple[tuple[int, int], ...]
    start: int


class Fetcher:
    """One range of offsets of one partition. Raises `ClientError`, and `DataLoss` if `fail_on_data_loss` is set."""

    def __init__(
        self,
        client: Client,
        offsets: OffsetRange,
        settings: FetchSettings,
        read_committed: bool = False,
        fail_on_data_loss: bool = True,
    ) -> None:
        self._client = client
        self._partition = offsets.partition
        self._start = self._offset = offsets.start
        self._end = offsets.end
        self._settings = settings
        self._read_committed = read_committed
        self._fail_on_data_loss = fail_on_data_loss
        self._bytes_per_offset = 0.0
        self._fetch_bytes = min(FIRST_FETCH_BYTES, settings.partition_bytes)
        self._ahead: SentRequest | None = None
        self._nothing_since: float | None = None

    def __iter__(self) -> Iterator[FetchedBatches]:
        while self._offset < self._end:
            answer = self._read_answer()
            if answer is None:
                continue
            data = answer.records or b""
            size, next_offset = measure_whole_batches(data)
            if size:
                yield from self._send_next_fetch_and_yield(answer, data, size, next_offset)
            elif data:  # a broker before 0.10.1 cuts a batch that is larger than the fetch size
                self._fetch_bytes = min(2 * self._fetch_bytes, MAX_FETCH_BYTES)
            else:
                self._skip_or_fail_empty_answer(answer)

    def _send_next_fetch_and_yield(
        self, answer: Any, data: bytes, size: int, next_offset: int | None
    ) -> Iterator[FetchedBatches]:
        """Send the next request, then yield the batches. Nothing can be fetched behind a batch without a valid end."""
        self._nothing_since = None
        if next_offset is not None and next_offset <= self._offset:
            raise ClientError(
                f"{self._describe_partition()}: asked for offset {self._offset}, got batches before {next_offset}"
            )
        if next_offset is not None:
            self._bytes_per_offset = size / (next_offset - self._offset)
        self._offset = self._end if next_offset is None else next_offset
        if self._offset < self._end:
            self._fetch_bytes = self._choose_fetch_bytes()
            self._ahead = self._send_fetch()
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        yield FetchedBatches(memoryview(data)[:size], self._describe_partition(), tuple(aborted), self._start)

    def _choose_fetch_bytes(self) -> int:
        """Return the expected size of the rest of the range, up to the limit."""
        rest = int((self._end - self._offset) * self._bytes_per_offset * 1.1) + SPARE_BYTES
        return min(rest, max(self._settings.partition_bytes, self._fetch_bytes))

    # Answers

    def _send_fetch(self) -> SentRequest:
        node_id, epoch = self._client.find_leader(self._partition)
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=self._offset,
            partition_max_bytes=self._fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max(self._settings.max_bytes, self._fetch_bytes),
            isolation_level=int(self._read_committed),
            session_epoch=-1,  # no session
            topics=[FetchRequest.FetchTopic(topic=self._partition.topic, partitions=[wanted])],
        )
        # Version 12 is the last one with topic names instead of ids.
        return self._client.send(request, node_id, lowest=4 if self._read_committed else 0, highest=12)

    def _read_answer(self) -> Any:
        """Return the leader's response; None if offsets were lost, which the next fetch skips."""
        try:
            return self._client.retry(self._read_answer_once)
        except ClientError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._skip_or_fail_out_of_range()
            if error.code in GONE:
                self._skip_lost_offsets(self._end, f"the partition is gone: {error}")
                return None
            raise

    def _read_answer_once(self) -> Any:
        """Return the partition's part of the next fetch response. Raises `ClientError` for an error in it."""
        sent = self._ahead or self._send_fetch()
        self._ahead = None
        answer = self._client.wait(sent)
        what = f"reading {self._partition} at {self._offset}"
        self._client.check(answer.error_code, what, sent.node)
        partition = answer.responses[0].partitions[0]
        self._client.check(partition.error_code, what, sent.node)
        if not partition.records and answer.throttle_time_ms:
            raise ClientError(f"{self._describe_partition()}: {what}: throttled", ErrorReaction.RETRY)
        return partition

    # Missing offsets

    def _skip_or_fail_out_of_range(self) -> None:
        """Find out which offsets exist, and skip those that are lost. Raises `DataLoss` if lost ones must fail."""
        earliest = list_offsets(self._client, {self._partition: EARLIEST}, self._read_committed)[self._partition]
        latest = list_offsets(self._client, {self._partition: LATEST}, self._read_committed)[self._partition]
        if self._offset < earliest:
            self._skip_lost_offsets(min(earliest, self._end), f"the partition begins at {earliest}")
        elif self._offset > latest:
            self._skip_lost_offsets(self._end, f"the partition ends at {latest}")
        elif self._has_waited_too_long():  # a new leader may not know its high watermark yet
            self._skip_lost_offsets(self._end, f"the leader has only offsets {earliest} to {latest}")

    def _skip_or_fail_empty_answer(self, answer: Any) -> None:
        """Handle an answer without batches: the next ones were compacted away, are not written yet, or were lost."""
        limit = answer.last_stable_offset if self._read_committed else answer.high_watermark
        if limit >= self._end:
            self._offset = self._end
        elif self._has_waited_too_long():
            self._skip_lost_offsets(self._end, f"the partition ends at {limit}")

    def _has_waited_too_long(self) -> bool:
        """Return whether nothing was received for `request.timeout.ms`."""
        now = time.monotonic()
        if self._nothing_since is None:
            self._nothing_since = now
        return now - self._nothing_since > self._client.settings.request_timeout_ms / 1000

    def _skip_lost_offsets(self, until: int, reason: str) -> None:
        """Go on at offset `until`. Raises `DataLoss` if lost offsets must fail the read."""
        if self._fail_on_data_loss:
            raise DataLoss(f"{self._describe_partition()}: offsets {self._offset} to {until - 1} are missing: {reason}")
        self._start = self._offset = until

    def _describe_partition(self) -> str:
        return f"{self._client.bootstrap_servers}, {self._partition}"


class BrokerSource:
    """The selected partitions of a cluster. It is pickled without its connections, and connects when it is used.

    `settings` are the options that begin with `kafka.`, without that prefix. Raises `OptionError` if one is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        selection: TopicSelection,
        settings: Mapping[str, str] | None = None,
        read_committed: bool = False,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._selection = selection
        self._settings = RemainingSettings(settings or {})
        self._read_committed = read_committed
        self._fetch_settings = FetchSettings.pop_from_settings(self._settings)
        make_client_settings(bootstrap_servers, self._settings)  # raises OptionError for invalid settings
        self._client: Client | None = None
        self._has_reached = False

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    @property
    def client(self) -> Client:
        """The connections of this process. Raises `ClientError` at once if at first no server answers.

        Later, servers may be away for a while: a stream waits for them.
        """
        if self._client is None:
            client = Client(self._bootstrap_servers, self._settings)
            if not self._has_reached:
                client.connect_to_any_node()
            self._client, self._has_reached = client, True
        return self._client

    def close(self) -> None:
        """Close the connections. They are opened again when they are needed."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def list_partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        """Return the selected partitions, sorted.

        Raises `OptionError` if one does not exist, unless `missing_ok`, and `ClientError`.
        """
        named = [*self._selection.topics, *(each.topic for each in self._selection.assigned)]
        try:
            there = self.client.list_partitions(named or None, missing_ok=missing_ok)
            return self._selection.choose_partitions(there, missing_ok=missing_ok)
        except ClientError as error:
            if named and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise OptionError(str(error)) from None
            raise

    def find_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return first offsets, and high watermarks (last stable offsets with `read_committed`).

        Raises `ClientError`.
        """
        wanted = list(partitions)
        # Get the end first: if records are deleted in between, a partition still does not end before it begins.
        latest = list_offsets(self.client, dict.fromkeys(wanted, LATEST), self._read_committed)
        earliest = list_offsets(self.client, dict.fromkeys(wanted, EARLIEST), self._read_committed)
        return {each: Bounds(earliest[each], max(earliest[each], latest[each])) for each in wanted}

    def find_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset with the given timestamp (ms) or a later one, or None if there is none."""
        found = list_offsets(self.client, timestamps_ms, self._read_committed)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def make_splits(self, ranges: Sequence[OffsetRange], min_splits: int = 0) -> list[Split]:
        """Return a split for each range that is not empty. For more splits, cut the large ranges."""
        return [Split(each) for each in divide_large_ranges(ranges, min_splits)]

    def read_split(self, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split. Raises `DataLoss`, `CorruptData` and `ClientError`."""
        aborted = AbortedRanges() if self._read_committed else None
        partition, start, end = split.offsets
        decoder = make_decoder(request, split.offsets, aborted)
        wanted = split.offsets, self._fetch_settings, self._read_committed, request.fail_on_data_loss
        with Client(self._bootstrap_servers, self._settings) as client:
            for fetched in Fetcher(client, *wanted):
                if fetched.start != start:
                    yield from decoder.decode_remaining_batches()
                    start = fetched.start
                    decoder = make_decoder(request, OffsetRange(partition, start, end), aborted)
                if aborted is not None:
                    for producer_id, first_offset in fetched.aborted:
                        aborted.add_range(producer_id, first_offset)
                yield from decoder.decode_data(fetched.data, fetched.place, None)
            yield from decoder.decode_remaining_batches()
