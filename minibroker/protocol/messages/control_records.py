""""""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64, uint16


class ControlRecordTypeSchema(Message, versions="0"):
    type: int16 = field()


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int32 = field()


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int16 = field()
    leader_id: int32 = field()
    voters: list[Voter] = field()
    granting_voters: list[Voter] = field()

    class Voter(Struct):
        voter_id: int32 = field()
        voter_directory_id: Uuid = field("1+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int16 = field()
    last_contained_log_timestamp: int64 = field()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int16 = field()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int16 = field()
    k_raft_version: int16 = field()


class VotersRecord(Message, versions="0", flexible="0+"):
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
