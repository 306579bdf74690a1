"""The log of a running broker: its partitions, their bounds, and the rows of offset ranges.

`client` connects and asks, `fetching` fetches. Decoding and planning are in other packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import RemainingSettings
from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets
from minibroker.pipeline.brokers.client import Client, make_client_settings
from minibroker.pipeline.brokers.fetching import Fetcher, FetchSettings
from minibroker.pipeline.decode.decoder import AbortedRanges, make_decoder
from minibroker.pipeline.log_source import Bounds, OffsetRange, OptionError, ReadRequest, Split, TopicPartition
from minibroker.pipeline.planning import divide_large_ranges
from minibroker.pipeline.selection import TopicSelection
from minibroker.protocol.errors import ErrorCode


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
