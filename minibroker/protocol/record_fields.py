"""The fields of record batches and records, and of the messages of formats 0 and 1, for people.

These bytes have their own readers (`records/`), as speed and their varints ask for it, so they are not declared as
messages are.
"""

from __future__ import annotations

from typing import NamedTuple


class RecordField(NamedTuple):
    """A field: its name and type as `explain` shows them, what it is for, and the KIP that brought it.

    `versions` are the record formats that have it, if not all of those that its struct is in.
    """

    name: str
    type: str
    about: str
    kip: int | None = None
    nullable: bool = False
    versions: str = ""


class RecordStruct(NamedTuple):
    """A part of records: its type as `explain` shows it, the names people may ask for, and its record formats."""

    type: str
    names: tuple[str, ...]
    versions: str
    about: str
    fields: tuple[RecordField, ...]


_BATCH = (
    RecordField("base_offset", "int64", "The first record's offset; producers write 0, and the broker the real one."),
    RecordField("batch_length", "int32", "How many bytes follow this field, by which readers go from batch to batch."),
    RecordField(
        "partition_leader_epoch", "int32", "The epoch of the leader that appended it, which the broker writes.", 101
    ),
    RecordField("magic", "int8", "The record format, 2; the older formats have theirs at the same place."),
    RecordField("crc", "uint32", "A CRC-32C of all that follows, so that damage is noticed; the broker checks it."),
    RecordField(
        "attributes",
        "int16",
        "Bits 0 to 2 are the compression, 3 the kind of time, 4 transactional, 5 control batch, 6 delete horizon.",
    ),
    RecordField(
        "last_offset_delta", "int32", "The last offset less the first; it stays when compaction removes records."
    ),
    RecordField("base_timestamp", "int64", "The first record's time, or the delete horizon of the batch's tombstones."),
    RecordField(
        "max_timestamp", "int64", "The newest time in the batch, or that of the append, for retention by time."
    ),
    RecordField("producer_id", "int64", "The idempotent producer that wrote the batch; -1 for all others.", 98),
    RecordField(
        "producer_epoch", "int16", "The producer's epoch, so that older ones with the same id are refused.", 98
    ),
    RecordField(
        "base_sequence", "int32", "The first record in the producer's own count, to find duplicates and gaps.", 98
    ),
    RecordField("record_count", "int32", "How many records follow, which may be fewer than offsets after compaction."),
    RecordField("records", "[]Record", "The records, which are compressed together if the attributes say so."),
)
_RECORD = (
    RecordField("length", "varint", "How many bytes of the record follow."),
    RecordField("attributes", "int8", "Not used yet: all bits are 0."),
    RecordField("timestamp_delta", "varlong", "The record's time less base_timestamp, which takes fewer bytes."),
    RecordField(
        "offset_delta", "varint", "The record's offset less base_offset, so that brokers need not rewrite records."
    ),
    RecordField(
        "key", "bytes", "Most often decides the partition, and what compaction keeps the last record of.", nullable=True
    ),
    RecordField(
        "value", "bytes", "The content; null is a tombstone, by which compaction removes the key.", nullable=True
    ),
    RecordField(
        "headers", "[]header", "What applications add to it, such as a trace id; brokers do not read them.", 82
    ),
)
_HEADER = (
    RecordField("key", "string", "What the header is called; several of a record may be called the same.", 82),
    RecordField("value", "bytes", "What the application has put there.", 82, nullable=True),
)
_MESSAGE = (
    RecordField("offset", "int64", "Its offset; inside a compressed message of format 1, counted from the first one."),
    RecordField("size", "int32", "How many bytes of the message follow."),
    RecordField("crc", "uint32", "A CRC-32 of all that follows, so that damage is noticed."),
    RecordField("magic", "int8", "The record format: 0, or 1 with a timestamp."),
    RecordField(
        "attributes", "int8", "Bits 0 to 2 say how the messages in the value are compressed, bit 3 the kind of time."
    ),
    RecordField(
        "timestamp", "int64", "When it was created, or appended if bit 3 of the attributes says so.", 32, versions="1"
    ),
    RecordField(
        "key",
        "bytes",
        "Most often decides the partition, and what compaction keeps the last message of.",
        nullable=True,
    ),
    RecordField(
        "value", "bytes", "The content, or compressed messages; null is a tombstone for compaction.", nullable=True
    ),
)
STRUCTS = (
    RecordStruct("RecordBatch", ("RecordBatch",), "2", "Records as Kafka sends and stores them since 0.11.", _BATCH),
    RecordStruct("Record", ("Record",), "2", "A record in a batch, with variable lengths for all numbers.", _RECORD),
    RecordStruct("header", ("RecordHeader",), "2", "A name and a value that applications add to a record.", _HEADER),
    RecordStruct(
        "Message",
        ("Message", "MessageSet"),
        "0-1",
        "A record as it was before Kafka 0.11; a message set is one after the other.",
        _MESSAGE,
    ),
)
BY_PLACE = {(struct.type, field.name): field for struct in STRUCTS for field in struct.fields}
