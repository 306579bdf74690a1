"""Control records, which transactions and the quorum write into a log between the applications' records.

They are in separate batches with the control bit, which `building.py` writes like any other. Their values are declared
in `messages/control_records.py`.

    key    int16 version (0), int16 type                        version of the key, kind of the record
    value  ABORT, COMMIT     int16 version (0), int32 coordinator_epoch
           all other types   a message of that version, whose first field, version, is an int16 too
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.messages.control_records import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.record import Record

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_VERSION = Struct(">h")


class ControlType(IntEnum):
    """The kinds of control records (Kafka's ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


QuorumMessage = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord

QUORUM_MESSAGES: dict[ControlType, tuple[type[QuorumMessage], int]] = {  # and their latest version
    ControlType.LEADER_CHANGE: (LeaderChangeMessage, 1),
    ControlType.SNAPSHOT_HEADER: (SnapshotHeaderRecord, 0),
    ControlType.SNAPSHOT_FOOTER: (SnapshotFooterRecord, 0),
    ControlType.KRAFT_VERSION: (KRaftVersionRecord, 0),
    ControlType.KRAFT_VOTERS: (VotersRecord, 0),
}


def encode_control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record of this type."""
    return _KEY.pack(0, control_type)


def decode_control_type(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key; None for a type of a later Kafka, which readers skip.

    Raises `InvalidRecords` for an invalid key.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecords("the key of a control record has at least 4 bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecords(f"Invalid version found for control record: {version}. May indicate data corruption")
    return ControlType(number) if number in ControlType._value2member_map_ else None


def make_transaction_marker(*, committed: bool, coordinator_epoch: int, timestamp: int) -> Record:
    """Return the record that ends a transaction. Its batch must have the producer's id and epoch."""
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    return Record(timestamp=timestamp, key=encode_control_key(kind), value=_MARKER.pack(0, coordinator_epoch))


def make_control_record(message: QuorumMessage, *, timestamp: int) -> Record:
    """Return the record of a quorum's message, in the version of its field `version`."""
    kind = next(kind for kind, (known, _) in QUORUM_MESSAGES.items() if type(message) is known)
    return Record(timestamp=timestamp, key=encode_control_key(kind), value=message.encode(message.version))


def decode_control_message(record: Record) -> EndTxnMarker | QuorumMessage | None:
    """Decode a control record: an `EndTxnMarker` (the key says ABORT or COMMIT) or a quorum's message.

    Return None for a type of a later Kafka. As in Kafka, a value of a later version is read as the latest known one.
    Raises `InvalidRecords` for a malformed key or value.
    """
    kind = decode_control_type(record.key)
    if kind is None:
        return None
    value = record.value or b""
    if len(value) < _VERSION.size:
        raise InvalidRecords(f"the value of a control record of type {kind.name} is too short: {len(value)} bytes")
    (version,) = _VERSION.unpack_from(value)
    if version < 0:
        raise InvalidRecords(f"Invalid version found for control record: {version}. May indicate data corruption")
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return _decode_marker(value)
    message, latest = QUORUM_MESSAGES[kind]
    try:
        return message.decode(value, min(version, latest))
    except MalformedMessage as error:
        raise InvalidRecords(f"malformed control record of type {kind.name}: {error}") from error


def _decode_marker(value: bytes) -> EndTxnMarker:
    if len(value) < _MARKER.size:
        raise InvalidRecords(f"Invalid value size found for end transaction marker: {len(value)} bytes")
    _, coordinator_epoch = _MARKER.unpack_from(value)
    return EndTxnMarker(coordinator_epoch=coordinator_epoch)
