"""Records as they are in the log, with all its details, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minibroker.protocol.records.batch import MAX_RECORD_BYTES, MAX_SEQUENCE, BatchHeader
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from minibroker.protocol.records.record import Record as StoredRecord

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.metadata.partitions import Partition

READ_BYTES = 1 << 20
SHOWN_RECORDS = 20
SHOWN_BYTES = 100  # of a key or a value


@dataclass(frozen=True, repr=False)
class Record:
    """A record as it is stored in the log.

    `timestamp_ms` is -1 in message format 0, which has none; `timestamp_type` is "create" or "append". `transaction` is
    None outside of transactions, or else "committed", "aborted" or "open". `sequence` is -1 without a producer id.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: str
    transaction: str | None
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    magic: int

    @property
    def text(self) -> str:
        """Return the value as text. Raises ValueError for a value that is null or not UTF-8."""
        __tracebackhide__ = True
        if self.value is None:
            raise ValueError(f"{self} has no text: its value is null")
        try:
            return self.value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self} has no text: its value is not UTF-8") from None

    @property
    def json(self) -> Any:
        """Return the value, which is JSON. Raises ValueError for a value that is null or not JSON."""
        import json

        __tracebackhide__ = True
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{self} is not JSON: {error}") from None

    @property
    def counts(self) -> bool:
        """Return whether a consumer with `isolation.level=read_committed` gets it."""
        return self.transaction in (None, "committed")

    def __str__(self) -> str:
        """Describe the record in a line, as failures of tests show it."""
        key = "" if self.key is None else f"key {_format_bytes(self.key)}, "
        said = f"{self.topic}-{self.partition} offset {self.offset}: {key}value {_format_bytes(self.value)}"
        if self.headers:
            said += ", headers " + ", ".join(f"{name}={_format_bytes(value)}" for name, value in self.headers)
        return said if self.transaction is None else f"{said}, transaction {self.transaction}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


def _format_bytes(data: bytes | None) -> str:
    """Describe a key or a value, shortened to `SHOWN_BYTES`: as text if it is printable."""
    if data is None:
        return "null"
    shown, more = data[:SHOWN_BYTES], f"... ({len(data)} bytes)" if len(data) > SHOWN_BYTES else ""
    text = shown.decode(errors="ignore")
    is_text = text.isprintable() and data.startswith(text.encode()) and (more or text.encode() == data)
    return f"{text if is_text else shown!r}{more}"


def describe_records(records: Sequence[Record]) -> str:
    """Describe records, one in a line, up to `SHOWN_RECORDS`."""
    lines = [f"\n  {each}" for each in records[:SHOWN_RECORDS]]
    more = len(records) - SHOWN_RECORDS
    return "".join([*lines, f"\n  ({more} more)"] if more > 0 else lines)


def list_local_partitions(cluster: Broker, topic: str) -> list[Partition]:
    """Return the partitions of a topic that have a log here."""
    found = cluster.image.topics.get(topic)
    return [] if found is None else [each for each in found.partitions if each.has_local_log]


def get_upper_bound_of_records(cluster: Broker, topic: str) -> int:
    """Return an upper bound for the number of a topic's records, without reading any."""
    return sum(each.log.log_end_offset - each.log.log_start_offset for each in list_local_partitions(cluster, topic))


def iterate_records(partition: Partition, first: int) -> Iterator[Record]:
    """Yield the records from the offset `first` on."""
    log = partition.log
    offset = first = max(first, log.log_start_offset)
    while (region := log.read(offset, READ_BYTES)) is not None:
        data = region.read()
        for position, header in iterate_batches_in_any_format(data):
            yield from _iterate_records_of_batch(partition, header, data, position, first)
        offset = region.next_offset


def _iterate_records_of_batch(
    partition: Partition, header: BatchHeader, data: bytes, position: int, first: int
) -> Iterator[Record]:
    """Yield the records of the batch at `position` from the offset `first` on, none if they are control records."""
    if header.is_control:
        return
    for record in iterate_records_in_any_format(data, position, limit_bytes=MAX_RECORD_BYTES):
        if record.offset >= first:
            yield make_record(partition, header, record)


def make_record(partition: Partition, header: BatchHeader, record: StoredRecord) -> Record:
    """Return a record of a batch, with its topic, its partition and the state of its transaction."""
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE
    return Record(
        topic=partition.topic.name,
        partition=partition.index,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple((key, value) for key, value in record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type="append" if header.timestamp_type else "create",
        transaction=_find_transaction_state(partition, header, record.offset),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        sequence=sequence,
        leader_epoch=header.partition_leader_epoch,
        magic=header.magic,
    )


def _find_transaction_state(partition: Partition, header: BatchHeader, offset: int) -> str | None:
    """Return "open", "aborted" or "committed" for a record in a transaction, else None."""
    if not header.is_transactional:
        return None
    log = partition.log
    begun = log.producers.open_transactions.get(header.producer_id)
    if begun is not None and offset >= begun:
        return "open"
    for aborted in log.list_aborted_transactions(offset, offset + 1):
        if aborted.producer_id == header.producer_id and aborted.first_offset <= offset <= aborted.last_offset:
            return "aborted"
    return "committed"
