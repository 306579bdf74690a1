"""One pass over the partitions of a Fetch in steps: for many partitions, or for records that must be converted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.fetch_sessions import INITIAL_EPOCH, FetchedPartition
from minibroker.broker.handlers.down_conversion import (
    ConvertedRecords,
    DownConversionNeeded,
    read_records_for_client_in_steps,
)
from minibroker.broker.handlers.fetch_reading import (
    PORTION,
    UNREADABLE,
    FetchReading,
    PartitionAnswer,
    TopicAnswer,
    count_extra_length_bytes,
    is_answer_new_to_client,
    measure_answer_bytes,
)
from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.steps import Steps, remove_items_in_portions, split_into_portions
from minibroker.storage.segment import Region

if TYPE_CHECKING:
    from minibroker.broker.handlers.watching import PartitionWatch

Runs = list[tuple[str | bytes, list[FetchedPartition]]]  # the partitions that follow each other of the same topic


class LongFetchReading(FetchReading):
    """One pass in steps over many partitions. It keeps as little as possible for each.

    `found` has the answers with records, `refused` the errors, and `changed` the partitions that have changed for an
    incremental session. Everything else is looked up when the answer is written; that empties `wanted`.
    """

    __slots__ = ("changed", "found", "places", "refused")

    def _reset_answers(self) -> None:
        super()._reset_answers()
        self.found: dict[FetchedPartition, tuple[PartitionAnswer, int]] = {}
        self.refused: dict[FetchedPartition, ErrorCode] = {}
        self.changed: set[FetchedPartition] | None = None
        if self.session is not None and self.request.session_epoch > INITIAL_EPOCH:
            self.changed = set()

    def read_all_partitions(self) -> Steps[None]:
        """Read all partitions, a portion at a time."""
        self._reset_answers()
        for portion in split_into_portions(self.wanted):
            for fetched in portion:
                self._keep_answer_for_response(fetched, *(yield from self._read_partition_in_steps(fetched)))
            yield

    async def add_watch_to_partitions(self, watch: PartitionWatch) -> None:
        """Register `watch` at all partitions; all count as changed at first, as it takes several steps."""
        watch.reserve_watched_partitions(len(self.wanted))
        self.places: defaultdict[Partition, list[FetchedPartition]] = defaultdict(list)
        for fetched in self.wanted:
            partition = self.context.find_partition(fetched.topic, fetched.index)
            if partition is not None:
                self.places[partition].append(fetched)
                watch.register_as_waiter(partition.waiters)
            await pause()
        watch.has_changed = True

    async def reread_grown_partitions(self, watch: PartitionWatch) -> None:
        """Read again the partitions that `watch` saw grow; all, if something else has changed or the time is over."""
        grown, watch.grown = watch.grown, {}
        if watch.has_changed or watch.is_late:
            watch.has_changed = False
            await run_in_slices(self.read_all_partitions())
            return
        for partition in grown:
            for fetched in self.places.get(partition, ()):
                await run_in_slices(self._reread_partition(fetched))
                await pause()

    def _reread_partition(self, fetched_partition: FetchedPartition) -> Steps[None]:
        _, size_bytes = self.found.pop(fetched_partition, (None, 0))
        self.refused.pop(fetched_partition, None)
        self.size_bytes -= size_bytes
        self._keep_answer_for_response(
            fetched_partition, *(yield from self._read_partition_in_steps(fetched_partition))
        )

    def _keep_answer_for_response(
        self, fetched_partition: FetchedPartition, answer: PartitionAnswer, size_bytes: int
    ) -> None:
        """Keep an answer with records or an error; note whether it is new to the session's client."""
        self.size_bytes += size_bytes
        code = ErrorCode(answer.error_code)
        if size_bytes:
            self.found[fetched_partition] = answer, size_bytes
        elif code and code not in UNREADABLE:
            self.refused[fetched_partition] = code
        if self.changed is not None and is_answer_new_to_client(fetched_partition, answer, size_bytes):
            self.changed.add(fetched_partition)

    def _read_partition_in_steps(self, fetched_partition: FetchedPartition) -> Steps[tuple[PartitionAnswer, int]]:
        """Return what `_read_partition` does, also if records must be converted."""
        while True:
            try:
                return self._read_partition(fetched_partition, self._count_response_bytes_left())
            except DownConversionNeeded as needed:
                conversion = needed.with_traceback(None)  # the traceback would keep this frame alive
            result: Region | ConvertedRecords | KafkaError | None
            try:
                result = yield from read_records_for_client_in_steps(conversion.log, conversion.read_request)
            except KafkaError as error:
                result = error.with_traceback(None)
            if not conversion.must_reread_log():
                return self._make_answer_of_converted_records(fetched_partition, conversion, result)

    def _make_answer_of_converted_records(
        self,
        fetched_partition: FetchedPartition,
        conversion: DownConversionNeeded,
        read_result: Region | ConvertedRecords | KafkaError | None,
    ) -> tuple[PartitionAnswer, int]:
        """Return the answer with converted records, or their error, and their size in bytes."""
        if isinstance(read_result, KafkaError):
            return self._make_error_answer(fetched_partition, read_result.code), 0
        if isinstance(read_result, ConvertedRecords) and read_result.next_offset < conversion.read_request.limit_offset:
            self.urgent = True  # there is more, which the next fetch converts
        return self._set_answer_records(
            fetched_partition, conversion.answer, conversion.log, conversion.read_request.limit_offset, read_result
        )

    # --- answering ------------------------------------------------------------------------------

    def can_answer_now(self) -> bool:
        return self.urgent or self.size_bytes >= self.min_bytes or self.unreadable == len(self.wanted)

    async def build_response(self) -> FetchResponse:
        return await run_in_slices(self.make_response_in_steps())

    def read_partitions_and_respond(self) -> Steps[FetchResponse]:
        """Read all partitions for the last time, and return the answer."""
        yield from self.read_all_partitions()
        return (yield from self.make_response_in_steps())

    def make_response_in_steps(self) -> Steps[FetchResponse]:
        """Return the answer as `make_response` does, built a portion at a time."""
        runs: Runs = []
        for portion in remove_items_in_portions(self.wanted):
            for fetched in portion:
                if self.changed is None or fetched in self.changed:
                    if not runs or runs[-1][0] != fetched.topic:
                        runs.append((fetched.topic, []))
                    runs[-1][1].append(fetched)
            yield
        if self.context.usage is not None and self._charge_quota_for_answer(
            (yield from self._measure_response_in_steps(runs))
        ):
            return self._make_throttled_response()
        topics: list[TopicAnswer] = []
        for key, partitions in runs:
            topics.append(self._make_topic_answer(key))
            if self.context.may_take_apart:
                topics[-1].partitions = _AnswersMadeOnDemand(self, partitions)  # type: ignore[assignment]
                continue
            for named in split_into_portions(partitions):
                topics[-1].partitions += map(self.get_answer_and_update_session, named)
                yield
        return self._add_leader_endpoints(self._assemble_response(topics))

    def _measure_response_in_steps(self, runs: Runs) -> Steps[int]:
        """Return the size in bytes of the answer with these (topic, partitions), without building all of it."""
        version = self.context.version
        none_bytes = measure_answer_bytes(FetchResponse(), version)
        size_bytes = none_bytes + count_extra_length_bytes(len(runs), version)
        for key, partitions in runs:
            bare_bytes = measure_answer_bytes(FetchResponse(responses=[self._make_topic_answer(key)]), version)
            size_bytes += bare_bytes - none_bytes + count_extra_length_bytes(len(partitions), version)
            for portion in split_into_portions(partitions, PORTION):
                topic = self._make_topic_answer(key)
                topic.partitions = [self._get_kept_answer_and_size(fetched)[0] for fetched in portion]
                size_bytes += measure_answer_bytes(FetchResponse(responses=[topic]), version) - bare_bytes
                yield
        return size_bytes

    def get_answer_and_update_session(self, fetched_partition: FetchedPartition) -> PartitionAnswer:
        """Return the answer for a partition, and note it in the session."""
        answer, size_bytes = self._get_kept_answer_and_size(fetched_partition)
        self.found.pop(fetched_partition, None)
        if self.session is not None:
            self._remember_sent_partition(self.session, fetched_partition, answer, size_bytes)
        return answer

    def _get_kept_answer_and_size(self, fetched_partition: FetchedPartition) -> tuple[PartitionAnswer, int]:
        """Return the answer for a partition, and the size of its records in bytes."""
        found = self.found.get(fetched_partition)
        if found is not None:
            return found
        code = self.refused.get(fetched_partition)
        return (
            self._read_partition(fetched_partition, None)
            if code is None
            else (self._make_error_answer(fetched_partition, code), 0)
        )


class _AnswersMadeOnDemand:
    """The answers for partitions. Each is built when it is encoded, and not kept."""

    def __init__(self, reading: LongFetchReading, partitions: list[FetchedPartition]) -> None:
        self._reading = reading
        self._partitions = partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[PartitionAnswer]:
        for portion in remove_items_in_portions(self._partitions):
            yield from map(self._reading.get_answer_and_update_session, portion)


def make_long_fetch_reading(reading: FetchReading) -> LongFetchReading:
    """Return a reading of the same partitions that works in steps."""
    return LongFetchReading(reading.context, reading.request, reading.session, reading.wanted)
