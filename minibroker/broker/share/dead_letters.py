"""Dead letter queues of share groups (KIP-1191): a record in a topic for each record that is delivered no more.

    acquired --- rejected, or released after the last delivery ---> archiving --- dead letter written ---> archived

A group has a queue if `errors.deadletterqueue.topic.name` names a topic and the cluster's share.version is 2. The topic
must allow it with `errors.deadletterqueue.group.enable`. A dead letter has headers that say which record it stands for;
with `errors.deadletterqueue.copy.record.enable` it has the record's key and value, too, but as in Kafka 4.4.0 not its
headers. As in Kafka a record is archived even if its dead letter cannot be written, and a crash between the two leads
to a second dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from minibroker.broker.clock import run_steps_in_slices
from minibroker.broker.configs.group_settings import DEAD_LETTER_COPIES, DEAD_LETTER_TOPIC, get_group_config
from minibroker.broker.metadata.leaders import get_led_partition
from minibroker.broker.metadata.partitions import NO_LEADER, Partition, Topic
from minibroker.broker.turn import AppendWait, make_append_wait
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, BatchHeader
from minibroker.protocol.records.building import build_batch_in_steps
from minibroker.protocol.records.formats import (
    is_old_format,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.payload import iterate_payload_chunks
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.steps import Steps
from minibroker.storage.log_settings import MAX_LONG
from minibroker.storage.validation import validate_records_in_steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.share.runs import GivenUpRecords

log = logging.getLogger("minibroker.share")

TOPIC_ALLOWS: Final = "errors.deadletterqueue.group.enable"
TOPIC_CONFIGS: Final = {TOPIC_ALLOWS: "true", "message.timestamp.type": "CreateTime"}  # of topics that are created
RESERVED_PREFIX: Final = "__"
REJECTED: Final = b"Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = b"Offset delivery count exceeded the threshold."
NO_RECORD: Final = Record()

ATTEMPTS: Final = 5
FIRST_RETRY_MS: Final = 1000
RETRIABLE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_ALREADY_EXISTS})
READ_BYTES: Final = 1 << 20
RECORD_OVERHEAD_BYTES: Final = 48  # at most, of a record without key, value and headers
HEADER_OVERHEAD_BYTES: Final = 10  # at most, of a header without key and value
NEWEST_PRODUCE: Final = 13


class OriginalRecords(NamedTuple):
    """Records by offset, as far as they could be read, and the last offset up to which they were looked for."""

    records: dict[int, Record]
    last: int


class DeadLetters:
    """The dead letter queues of all share groups."""

    def __init__(self, cluster: Cluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller

    def write_dead_letters(
        self, group_id: str, partition: Partition, record_ranges: Sequence[GivenUpRecords], callback: Callable[[], None]
    ) -> None:
        """Write a dead letter for each of these records of a partition, and call `callback`, also if that fails."""
        _DeadLetterWriting(
            self._cluster, self._controller, group_id, partition, record_ranges, callback
        ).start_writing()


class _DeadLetterWriting:
    """The writing of dead letters for some records. `_left` has those that are not in the queue's log yet."""

    def __init__(
        self,
        cluster: Cluster,
        controller: Controller,
        group_id: str,
        partition: Partition,
        record_ranges: Iterable[GivenUpRecords],
        callback: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._group_id = group_id
        self._partition = partition
        # In order: what is read of the partition goes on from one to the next.
        self._left = {offset: one for one in sorted(record_ranges) for offset in range(one.first, one.last + 1)}
        self._described = f"{len(self._left)} records of {partition} from {next(iter(self._left))} on"
        self._then = callback
        self._attempts = 0

    def start_writing(self) -> None:
        """Begin to write the dead letters that are left, in slices."""
        self._attempts += 1
        run_steps_in_slices(self._cluster.clock, self._write_dead_letters_or_retry())

    def _write_dead_letters_or_retry(self) -> Steps[None]:
        try:
            wait = yield from self._append_dead_letters()
        except KafkaError as error:
            self._retry_or_finish_write(error)
        else:
            self._cluster.turn.call_when_wait_is_over(wait, self._retry_or_finish_write)

    def _retry_or_finish_write(self, failure: KafkaError | None) -> None:
        """Retry after a retriable failure, later each time; else log a failure, and call the callback."""
        if failure is not None and failure.code in RETRIABLE and self._attempts < ATTEMPTS:
            self._cluster.clock.call_later(FIRST_RETRY_MS << self._attempts - 1, self.start_writing)
            return
        if failure is not None:
            log.error("%s get no dead letters of share group %s: %s", self._described, self._group_id, failure)
        self._then()

    # --- the topic --------------------------------------------------------------------------------

    def _find_or_create_dead_letter_topic(self) -> Steps[Topic]:
        """Return the dead letter topic, created if the settings allow that. Raises KafkaError."""
        name = str(get_group_config(self._cluster, self._group_id, DEAD_LETTER_TOPIC))
        image, controller = self._cluster.image, self._controller
        objection = self._find_topic_objection(name, image.topics.get(name))
        if objection is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{objection}: {name!r}")
        if name not in image.topics:
            if controller.is_topic_changing(name):
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{name} is being created.")
            yield from controller.create_topic_in_steps(name, overrides=TOPIC_CONFIGS)
        return image.topics[name]

    def _find_topic_objection(self, name: str, topic: Topic | None) -> str | None:
        """Return why a topic cannot be the dead letter topic, by Kafka's rules; None if it can."""
        settings = self._cluster.settings
        if not name:
            return "The group names no dead letter topic"
        if name.startswith(RESERVED_PREFIX):
            return "The name of the dead letter topic is reserved"
        if topic is not None and topic.overrides.get(TOPIC_ALLOWS) != "true":
            return f"The dead letter topic does not have {TOPIC_ALLOWS}=true"
        if topic is None and not settings["errors.deadletterqueue.auto.create.topics.enable"]:
            return "The dead letter topic does not exist"
        prefix = settings["errors.deadletterqueue.topic.name.prefix"]
        return None if name.startswith(prefix) else f"The name of the dead letter topic does not begin with {prefix}"

    # --- its records ------------------------------------------------------------------------------

    def _append_dead_letters(self) -> Steps[AppendWait]:
        """Append the dead letters that are left; return the wait until they are written. Raises KafkaError."""
        topic = yield from self._find_or_create_dead_letter_topic()
        index = self._partition.index % len(topic.partitions)
        while True:
            target = self._find_led_partition(topic, index)
            letters = yield from self._make_dead_letters(target.log.settings.max_message_bytes)
            batch = memoryview((yield from build_batch_in_steps(letters)))
            now_ms = self._cluster.clock.wall_ms()
            validated = yield from validate_records_in_steps(
                target.log, batch, api_version=NEWEST_PRODUCE, now_ms=now_ms
            )
            if self._find_led_partition(topic, index).log is not target.log:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{target} has another log now.")
            target.append_batches(self._cluster.turn, *validated)
            for offset in list(self._left)[: len(letters)]:
                del self._left[offset]
            if not self._left:
                return make_append_wait(target.log)

    def _find_led_partition(self, topic: Topic, index: int) -> Partition:
        """Return a partition of the dead letter topic that has a leader here and enough replicas. Raises KafkaError."""
        leader_id = topic.partitions[index].leader_id
        if leader_id == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Nobody leads {topic.partitions[index]}.")
        partition = get_led_partition(leader_id, self._cluster.image.topics_by_id.get(topic.topic_id), index)
        partition.check_min_isr()
        return partition

    def _make_dead_letters(self, limit_bytes: int) -> Steps[list[Record]]:
        """Return the next dead letters, one for each offset: at least one, and no more than a batch has room for."""
        originals = OriginalRecords({}, MAX_LONG)
        if get_group_config(self._cluster, self._group_id, DEAD_LETTER_COPIES):
            originals = yield from self._read_original_records(limit_bytes)
        letters: list[Record] = []
        size_bytes = HEADER_BYTES
        for offset, given_up in self._left.items():
            letter = self._make_dead_letter(offset, given_up, originals.records.get(offset, NO_RECORD))
            size_bytes += _measure_largest_size(letter)
            if letters and (size_bytes > limit_bytes or offset > originals.last):
                break
            letters.append(letter)
            yield
        return letters

    def _make_dead_letter(self, offset: int, record_range: GivenUpRecords, original: Record) -> Record:
        headers = (
            ("__dlq.errors.topic", self._partition.topic.name.encode()),
            ("__dlq.errors.partition", str(self._partition.index).encode()),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", self._group_id.encode()),
            ("__dlq.errors.delivery.count", str(record_range.deliveries).encode()),
            ("__dlq.errors.message", REJECTED if record_range.is_rejected else DELIVERED_TOO_OFTEN),
        )
        now_ms = self._cluster.clock.wall_ms()
        return Record(timestamp=now_ms, key=original.key, value=original.value, headers=headers)

    # --- the records that they stand for ----------------------------------------------------------

    def _read_original_records(self, limit_bytes: int) -> Steps[OriginalRecords]:
        """Return the original records by offset, of about `limit_bytes`, without those that cannot be read."""
        originals: dict[int, Record] = {}
        kept, size_bytes = self._partition.log, 0
        offset: int | None = next(iter(self._left))
        try:
            while offset is not None:
                region = kept.read(offset, READ_BYTES, limit_offset=kept.high_watermark)
                if region is None:
                    break
                data = region.file.read(region.position, region.size_bytes)
                for position, header in iterate_batches_in_any_format(data):
                    for record in (yield from _decode_records(data, position, header, limit_bytes)):
                        if record.offset in self._left:
                            originals[record.offset] = record
                            size_bytes += _measure_largest_size(record)
                    if size_bytes > limit_bytes:
                        return OriginalRecords(originals, header.last_offset)
                offset = next((each for each in self._left if each >= region.next_offset), None)
        except (KafkaError, OSError) as error:
            log.warning("%s: records cannot be copied to a dead letter queue: %s", self._partition, error)
        return OriginalRecords(originals, MAX_LONG)


def _decode_records(data: bytes, position: int, header: BatchHeader, limit_bytes: int) -> Steps[list[Record]]:
    """Return the records of a batch, none of control batches. Raises KafkaError."""
    if header.is_control:
        return []
    if is_old_format(data, position):
        return list(iterate_records_in_any_format(data, position, limit_bytes=limit_bytes))
    payload = bytearray()
    for portion in iterate_payload_chunks(data, position, header, limit_bytes):
        payload += portion
        yield
    records: list[Record] = []
    for record in parse_records(payload, header):
        records.append(record)
        yield
    return records


def _measure_largest_size(record: Record) -> int:
    """Return the most bytes that a record takes in a batch."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size_bytes += HEADER_OVERHEAD_BYTES + len(key.encode()) + len(value or b"")
    return size_bytes
