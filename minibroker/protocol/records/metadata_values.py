"""The values of the records in `__cluster_metadata`: each is a message in a frame.

frame version | api key | version | message
uvarint (1)   | uvarint | uvarint | as declared in `messages/metadata_records.py`
"""

from __future__ import annotations

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.metadata_records import (
    METADATA_KINDS,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from minibroker.protocol.primitives import Output, encode_unsigned_varint, read_unsigned_varint

FRAME_VERSION = 1
# The record versions above 0, each with its first level of metadata.version, newest first (Kafka's MetadataVersion).
WRITTEN_VERSIONS: dict[type[Message], tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (8, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
}


class UnknownMetadata(ValueError):
    """A record of a kind or version that is unknown to Kafka 4.4."""


class MetadataFrame(NamedTuple):
    """The start of a value: the kind of the record, its version, and the position of its message."""

    api_key: int
    version: int
    position: int


def choose_record_version(message_class: type[Message], metadata_version: int) -> int:
    """Return the version of this kind of record at a level of metadata.version."""
    versions = WRITTEN_VERSIONS.get(message_class, ())
    return next((version for level, version in versions if level <= metadata_version), 0)


def encode_metadata_record(message: Message, metadata_version: int) -> bytes:
    """Return `message` encoded as a record's value, in the version for a level of metadata.version."""
    version = choose_record_version(type(message), metadata_version)
    out = Output()
    out += (
        encode_unsigned_varint(FRAME_VERSION)
        + encode_unsigned_varint(message.api_key)
        + encode_unsigned_varint(version)
    )
    message.encode_into(out, version)
    return bytes(out)


def read_metadata_frame(value: bytes) -> MetadataFrame:
    """Return the frame of a record's value, also of an unknown kind. Raises UnknownMetadata."""
    try:
        frame_version, position = read_unsigned_varint(value, 0)
        api_key, position = read_unsigned_varint(value, position)
        version, position = read_unsigned_varint(value, position)
    except (IndexError, ValueError) as error:
        raise UnknownMetadata(f"a value of {len(value)} bytes that begins with no frame") from error
    if frame_version != FRAME_VERSION:
        raise UnknownMetadata(f"metadata record {api_key} version {version} in frame version {frame_version}")
    return MetadataFrame(api_key, version, position)


def decode_metadata_record(value: bytes) -> Message:
    """Return the message in a record's value. Raises UnknownMetadata or MalformedMessage."""
    api_key, version, position = read_metadata_frame(value)
    kind = METADATA_KINDS.get(api_key)
    if kind is None or version not in kind.versions:
        raise UnknownMetadata(f"metadata record {api_key} version {version} in frame version {FRAME_VERSION}")
    return kind.decode(value, version, position)
