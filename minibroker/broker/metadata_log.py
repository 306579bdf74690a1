"""The metadata log, `__cluster_metadata-0`: Kafka's records of what the cluster is, written and read back.

A record's value is a frame around a message: unsigned varints for the frame's version (1), the record's API key and its
version, then the message in that version. What the records mean is the image's business.

     frame version | api key | version | message
     uvarint (1)   | uvarint | uvarint | as declared
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from minibroker.broker.image import InconsistentMetadata
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages import metadata_records
from minibroker.protocol.primitives import MalformedMessage, Output, read_varint, varint
from minibroker.protocol.records.batch import batches, check_batch, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record, records_of

if TYPE_CHECKING:
    from minibroker.storage.log import Log

FRAME_VERSION = 1
READ_BYTES = 8 << 20
# The versions that Kafka writes at metadata.version 4.3 (level 30).
WRITTEN_VERSIONS: dict[type[Message], int] = {
    metadata_records.RegisterBrokerRecord: 4,
    metadata_records.PartitionRecord: 2,
    metadata_records.PartitionChangeRecord: 2,
}


class MetadataError(Exception):
    """Why the metadata log cannot be built on, in one line that says where."""


class UnknownMetadata(ValueError):
    """A record of a kind or version that no Kafka up to 4.3 writes; what it would change is not known."""


def encode_record(message: Message) -> bytes:
    """The value of the record that says `message`, in the version that Kafka 4.3 writes."""
    version = WRITTEN_VERSIONS.get(type(message), 0)
    out = Output()
    out += varint(FRAME_VERSION) + varint(message.api_key) + varint(version)
    message.encode_into(out, version)
    return bytes(out)


def decode_record(value: bytes) -> Message:
    """The message in a record's value. Raises UnknownMetadata, or MalformedMessage."""
    try:
        frame_version, position = read_varint(value, 0)
        api_key, position = read_varint(value, position)
        version, position = read_varint(value, position)
    except (IndexError, ValueError) as error:
        raise UnknownMetadata(f"a value of {len(value)} bytes that begins with no frame") from error
    kind = KINDS.get(api_key)
    if frame_version != FRAME_VERSION or kind is None or version not in kind.versions:
        raise UnknownMetadata(f"metadata record {api_key} version {version} in frame version {frame_version}")
    return kind.decode(value, version, position)


class MetadataLog:
    """The log of partition 0 of `__cluster_metadata`, read from its start and appended to."""

    def __init__(self, storage: Log) -> None:
        self.storage = storage

    def replay(self, apply: Callable[[Message], None]) -> None:
        """Hand all records to `apply`, which may refuse one with InconsistentMetadata. Raises MetadataError."""
        offset = self.storage.log_start_offset
        if offset:
            raise self._error(0, f"the log begins at {offset}, and snapshots of what was before are not read yet")
        try:
            for record_offset, value in self._values():
                offset = record_offset
                apply(decode_record(value))
        except (UnknownMetadata, MalformedMessage, InconsistentMetadata, KafkaError) as error:
            raise self._error(offset, error) from error

    def _values(self) -> Iterator[tuple[int, bytes]]:
        """(offset, value) of all records but those of control batches. Raises KafkaError."""
        offset = self.storage.log_start_offset
        while (region := self.storage.read(offset, READ_BYTES, minimum_one=True)) is not None:
            data = memoryview(region.file.read(region.position, region.size_bytes))
            for position, header in batches(data):
                check_batch(data, position)
                if not header.is_control:
                    for record in records_of(data[position : position + header.size_bytes]):
                        yield record.offset, record.value or b""
            offset = region.next_offset

    def _error(self, offset: int, reason: object) -> MetadataError:
        return MetadataError(f"{self.storage.directory} cannot be used, offset {offset}: {reason}")

    def append(self, messages: Iterable[Message], now_ms: int, leader_epoch: int) -> None:
        """Write the records as one batch: after a crash all of them are there, or none."""
        values = [Record(0, now_ms, None, encode_record(message), ()) for message in messages]
        if values:
            batch = memoryview(build_batch(values))
            self.storage.append(batch, [read_header(batch)], leader_epoch)


KINDS: dict[int, type[Message]] = {
    kind.api_key: kind
    for kind in vars(metadata_records).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind.api_key >= 0
}
