"""Where `minibroker consume` gets records from: chosen offsets, the last records, or what a group has not read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from minibroker.cli.administration import TopicPartition
from minibroker.cli.places import PartitionPlace, RequestedTopic, find_offsets_at, list_partitions

if TYPE_CHECKING:
    from minibroker.client.blocking import Client
    from minibroker.client.record_fetching import FetchedRecord

GROW_S: Final = 5.0  # how often to look for new partitions, and new topics that match a pattern
COMMIT_S: Final = 5.0  # as consumers do by default


class ConsumeSelection(NamedTuple):
    """What to read: topics, the places where to begin and to end, and whether to wait for more."""

    topics: Sequence[RequestedTopic]
    start: Sequence[PartitionPlace]
    end: Sequence[PartitionPlace]
    last: int | None
    follow: bool
    read_committed: bool


class RecordSource(Protocol):
    """Records, in the order in which they come."""

    @property
    def is_at_end(self) -> bool:
        """Whether there was nothing more when the partitions were last asked."""

    def poll(self, wait_ms: int) -> Iterator[FetchedRecord]:
        """Yield the records of one fetch. Raises `ClientError`."""

    def record_printed_position(self, record: FetchedRecord | None) -> None:
        """Take note that all records of the last `poll` were printed, or only those up to `record`."""

    def close(self) -> None:
        """Commit up to the last record that was printed, if there is a group, and stop reading."""


class PartitionsSource:
    """The partitions of topics, from their places on."""

    def __init__(self, client: Client, selection: ConsumeSelection) -> None:
        from minibroker.client.record_fetching import RecordReader, read_last_records

        self._client = client
        self._selection = selection
        self._grown_s = time.monotonic()
        self._last: list[FetchedRecord] = []
        committed = selection.read_committed
        partitions = list_partitions(client, selection.topics)
        starts = find_offsets_at(client, partitions, selection.start, "earliest")
        ends = find_offsets_at(client, partitions, selection.end, "latest") if selection.end or selection.last else {}
        if selection.last:
            self._last = read_last_records(client, starts, ends, selection.last, read_committed=committed)
            starts = ends
        self._reader = RecordReader(client, starts, None if selection.follow else ends, read_committed=committed)

    @property
    def is_at_end(self) -> bool:
        """Whether there was nothing more when the partitions were last asked."""
        return self._reader.is_at_end and not self._last

    def poll(self, wait_ms: int) -> Iterator[FetchedRecord]:
        """Yield the records of one fetch; at the first call those of `--last`, if given. Raises `ClientError`."""
        if self._last:
            last, self._last = self._last, []
            return iter(last)
        if self._selection.follow and time.monotonic() - self._grown_s >= GROW_S:
            self._read_new_partitions()
        return self._reader.poll(wait_ms)

    def record_printed_position(self, record: FetchedRecord | None) -> None:
        """Do nothing, as nobody keeps what was read."""

    def close(self) -> None:
        """Do nothing."""

    def _read_new_partitions(self) -> None:
        """Read partitions and topics that are new, from their beginning."""
        known = self._reader.positions
        new = [each for each in list_partitions(self._client, self._selection.topics) if each not in known]
        self._reader.add_partitions(find_offsets_at(self._client, new, (), "earliest"))
        self._grown_s = time.monotonic()


class GroupSource:
    """The partitions that a group assigns to this member, from the committed offsets on.

    It commits what was printed, at least every `COMMIT_S`.
    """

    def __init__(self, client: Client, group: str, selection: ConsumeSelection) -> None:
        from minibroker.client.membership import GroupMembership

        self._client = client
        self._selection = selection
        self._known = list_partitions(client, selection.topics)
        self._member = GroupMembership(client, group, _collect_topics(self._known))
        self._grown_s = self._committed_s = time.monotonic()
        self._done: Mapping[TopicPartition, int] = {}  # the offsets after what was printed
        self._kept: Mapping[TopicPartition, int] = {}  # those that are committed
        self._join_group()

    @property
    def is_at_end(self) -> bool:
        """Whether there was nothing more when the partitions were last asked."""
        return self._reader.is_at_end

    def poll(self, wait_ms: int) -> Iterator[FetchedRecord]:
        """Yield the records of one fetch. Raises `ClientError`."""
        if not self._member.is_generation_current() or self._look_for_new_partitions():
            self._commit_offsets()
            self._join_group()
        elif time.monotonic() - self._committed_s >= COMMIT_S:
            self._commit_offsets()
        if not self._reader.positions:  # others have all partitions
            time.sleep(wait_ms / 1000)
            return iter(())
        return self._reader.poll(wait_ms)

    def record_printed_position(self, record: FetchedRecord | None) -> None:
        """Take note that all records of the last `poll` were printed, or only those up to `record`."""
        positions = dict(self._reader.positions)
        self._done = positions if record is None else positions | {record.partition: record.record.offset + 1}

    def close(self) -> None:
        """Commit what was printed, and leave the group."""
        self._commit_offsets()
        self._member.leave_group()

    def _look_for_new_partitions(self) -> bool:
        """Return whether there are new partitions or topics to subscribe to; look every `GROW_S` while following."""
        if not self._selection.follow or time.monotonic() - self._grown_s < GROW_S:
            return False
        known, self._known = self._known, list_partitions(self._client, self._selection.topics)
        self._member.subscribe(_collect_topics(self._known))
        self._grown_s = time.monotonic()
        return known != self._known

    def _join_group(self) -> None:
        from minibroker.client.record_fetching import RecordReader

        assigned = self._member.join_and_get_partitions()
        self._kept = self._member.fetch_committed_offsets(assigned) if assigned else {}
        new = [each for each in assigned if each not in self._kept]
        places = [each for each in self._selection.start if each.partition in (None, *(index for _, index in new))]
        starts = {**self._kept, **find_offsets_at(self._client, new, places, "earliest")}
        ends: dict[TopicPartition, int] | None = None if self._selection.follow else {}
        self._reader = RecordReader(self._client, starts, ends, read_committed=self._selection.read_committed)
        self._done = {}

    def _commit_offsets(self) -> None:
        changed = {each: offset for each, offset in self._done.items() if self._kept.get(each) != offset}
        if changed:
            self._member.commit_offsets(changed)
            self._kept = {**self._kept, **changed}
        self._committed_s = time.monotonic()


def _collect_topics(partitions: Sequence[TopicPartition]) -> set[str]:
    return {topic for topic, _ in partitions}
