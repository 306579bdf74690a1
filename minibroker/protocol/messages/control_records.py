"""Keys and values of control records, which transactions and the quorum write into a log."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64, uint16


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of every control record, with its type. An int16 with the version precedes it."""

    type: int16 = field()


class EndTxnMarker(Message, versions="0"):
    """The value of an ABORT or COMMIT record. An int16 with the version precedes it."""

    coordinator_epoch: int32 = field()


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """A new leader of the quorum, and who voted for it."""

    version: int16 = field()
    leader_id: int32 = field()
    voters: list[Voter] = field()
    granting_voters: list[Voter] = field()

    class Voter(Struct):
        voter_id: int32 = field()
        voter_directory_id: Uuid = field("1+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int16 = field()
    last_contained_log_timestamp: int64 = field()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot, without which it is incomplete."""

    version: int16 = field()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The quorum's own protocol version (KIP-853)."""

    version: int16 = field()
    k_raft_version: int16 = field()


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the quorum and how to reach them (KIP-853)."""

    version: int16 = field()
    voters: list[Voter] = field()

    class Voter(Struct):
        voter_id: int32 = field()
        voter_directory_id: Uuid = field()
        endpoints: list[Endpoint] = field()
        k_raft_version_feature: KRaftVersionFeature = field()

        class Endpoint(Struct):
            name: str = field()
            host: str = field()
            port: uint16 = field()

        class KRaftVersionFeature(Struct):
            min_supported_version: int16 = field()
            max_supported_version: int16 = field()
