"""The topic `_schemas` of the broker: created with the first record, appended to, and folded into the state.

Others may write to it, too: before each request, the registry reads what it has not read yet, up to the high watermark.
So nothing is in the state before it is written. A topic that was deleted, reset or restored is read from its beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from minibroker.broker.coordination.coordinator_logs import iterate_stored_batches
from minibroker.broker.metadata.partitions import NO_LEADER, Partition
from minibroker.broker.turn import make_append_wait
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import check_batch, read_header
from minibroker.protocol.records.building import build_plain_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import Steps
from minibroker.registry.state.coroutine_slices import LoopSlices
from minibroker.registry.state.registry_errors import Errors
from minibroker.registry.state.schema_records import Entry
from minibroker.registry.state.schema_state import SchemaState

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.storage.log import Log

log = logging.getLogger("minibroker.registry")

NAME: Final = "_schemas"
READ_BYTES: Final = 1 << 20  # at a time
WRITE_SECONDS: Final = 30.0
OVERRIDES: Final = {"cleanup.policy": "compact"}
REPLICAS_MAX: Final = 3


class SchemasTopic:
    """The topic, and the state that its records make."""

    def __init__(self, cluster: Callable[[], Broker]) -> None:
        """`cluster` returns the broker that runs now; it may raise an exception while there is none."""
        self._cluster = cluster
        self.state = SchemaState()
        self._log: Log | None = None  # which `state` is made of
        self._position = 0  # the offset of the next record to read
        self._begins = 0
        self._reading = asyncio.Lock()

    async def read_state(self) -> SchemaState:
        """Return the state with all records of the topic that are written. Raises RegistryError."""
        while not self._has_read_all_records():
            async with self._reading:
                slices = LoopSlices()
                for _ in self._read_new_records():
                    await slices.yield_to_loop_if_slice_is_over()
        return self.state

    def read_state_synchronously(self) -> SchemaState:
        """Return the state as `read_state` does, but without yielding to the event loop. Raises RegistryError."""
        while not self._has_read_all_records():
            for _ in self._read_new_records():
                pass
        return self.state

    async def read_state_to_change(self) -> SchemaState:
        """Return the state with all records, of which some may still have to be written. Raises RegistryError."""
        partition = self._find_partition()
        if partition is not None:
            partition.log.write_pending_batches()
        return await self.read_state()

    @property
    def state_version(self) -> tuple[int, int]:
        """A value that is another one whenever the state has changed."""
        return self._begins, self._position

    def _has_read_all_records(self) -> bool:
        partition = self._find_partition()
        if partition is None:
            if self._log is not None:
                self._begin_with_empty_state(None)
            return True
        if self._log is not partition.log or self._position > partition.log.high_watermark:
            self._begin_with_empty_state(partition.log)  # it is another one, or was truncated
        return self._position == partition.log.high_watermark

    def _find_partition(self) -> Partition | None:
        """Return the topic's only partition, or None without the topic. Raises RegistryError if it cannot be read."""
        topic = self._cluster().image.topics.get(NAME)
        partition = None if topic is None else topic.find_partition(0)
        if partition is not None and (partition.leader_id == NO_LEADER or partition.log.offline):
            raise Errors.STORE_FAILED.make_error(reason=f"nobody leads {NAME}-0")
        return partition

    def _begin_with_empty_state(self, from_log: Log | None) -> None:
        """Forget all records, to read them from this log (None if the topic does not exist)."""
        self.state, self._log, self._position = SchemaState(), from_log, 0
        self._begins += 1

    def _read_new_records(self) -> Steps[None]:
        """Apply the records that were written since the last call, one at each step. Raises RegistryError."""
        partition = self._find_partition()
        if partition is None:
            return
        source = partition.log
        self._position = max(self._position, source.log_start_offset)
        try:
            for position, header, data in iterate_stored_batches(source, self._position, READ_BYTES):
                batch = memoryview(data)[position : position + header.size_bytes]
                check_batch(batch)
                if not header.is_control:
                    for record in iterate_records_of_batch(batch):
                        if source is not self._log:
                            return
                        self._apply_record(record)
                        yield
                self._position = max(self._position, header.last_offset + 1)
        except (KafkaError, OSError) as error:
            raise Errors.STORE_FAILED.make_error(reason=str(error)) from None

    def _apply_record(self, record: Record) -> None:
        if record.offset < self._position:
            return  # of a batch whose end was still to be read
        self._position = record.offset + 1
        try:
            self.state.apply_record(record)
        except (ValueError, KeyError, TypeError) as error:
            log.error("%s: the record at offset %d is skipped: %s", NAME, record.offset, error)

    # --- writing --------------------------------------------------------------------------------

    async def append_records(self, entries: Sequence[Entry]) -> None:
        """Append records, wait until they are written, and apply them. Call it right after `read_state_to_change`.

        Raises RegistryError.
        """
        cluster = self._cluster()
        try:
            partition = self._find_partition() or self._create_topic(cluster)
            now_ms = cluster.clock.wall_ms()
            batch = memoryview(build_plain_batch(entries, now_ms))
            if len(batch) > partition.log.settings.max_message_bytes:
                raise Errors.TOO_LARGE.make_error()
            offset = partition.append_batches(cluster.turn, batch, [read_header(batch)])
        except KafkaError as error:
            raise Errors.STORE_FAILED.make_error(reason=str(error)) from None
        await self._wait_until_records_written(cluster, partition)
        if self._log is partition.log and self._position == offset:  # else it is read from the log
            for index, (key, value) in enumerate(entries):
                self._apply_record(Record(offset + index, now_ms, key, value))

    async def _wait_until_records_written(self, cluster: Broker, partition: Partition) -> None:
        """Wait until the appended records are acknowledged. Raises RegistryError."""
        done: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def report_written(failure: KafkaError | None) -> None:
            if not done.done():
                done.set_result(failure)

        cluster.turn.call_when_wait_is_over(make_append_wait(partition.log), report_written)
        if not done.done():
            try:
                await asyncio.wait_for(done, WRITE_SECONDS)
            except TimeoutError:
                raise Errors.STORE_FAILED.make_error(reason="the write has no end") from None
        failure = done.result()
        if failure is not None:
            raise Errors.STORE_FAILED.make_error(reason=str(failure))

    def _create_topic(self, cluster: Broker) -> Partition:
        replicas = min(REPLICAS_MAX, len(cluster.nodes))
        cluster.controller.create_topic(NAME, 1, replicas, overrides=OVERRIDES)
        partition = self._find_partition()
        assert partition is not None
        return partition
