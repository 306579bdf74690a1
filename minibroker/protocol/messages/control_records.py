"""Keys and values of control records, which transactions and the quorum write into a log."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32, int64, uint16


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of every control record, with its type. An int16 with the version precedes it."""

    type: int16 = field(
        about="0 is ABORT, 1 COMMIT, 2 a new leader of the quorum, 3 and 4 frame a snapshot, 5 and 6 are about voters."
    )


class EndTxnMarker(Message, versions="0"):
    """The value of an ABORT or COMMIT record. An int16 with the version precedes it."""

    coordinator_epoch: int32 = field(
        about="The leader epoch of the coordinator's partition, so that an outdated coordinator is refused."
    )


class LeaderChangeMessage(Message, versions="0-1", flexible="0+", kips={1: 853}):
    """A new leader of the quorum, and who voted for it."""

    version: int16 = field(about="The version of this record, which the record itself repeats.")
    leader_id: int32 = field(about="The controller that leads the quorum from here on.")
    voters: list[Voter] = field(about="The controllers that could vote.")
    granting_voters: list[Voter] = field(about="The controllers whose votes made it the leader.")

    class Voter(Struct):
        voter_id: int32 = field(about="The controller's number.")
        voter_directory_id: Uuid = field(
            "1+", about="The id of its log directory, which is part of a voter's identity."
        )


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int16 = field(about="The version of this record, which the record itself repeats.")
    last_contained_log_timestamp: int64 = field(
        about="The time of the last record that the snapshot takes the place of."
    )


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot, without which it is incomplete."""

    version: int16 = field(about="The version of this record, which the record itself repeats.")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The quorum's own protocol version (KIP-853)."""

    version: int16 = field(about="The version of this record, which the record itself repeats.")
    k_raft_version: int16 = field(about="0 is a fixed set of voters, 1 one that can change while the quorum runs.")


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the quorum and how to reach them (KIP-853)."""

    version: int16 = field(about="The version of this record, which the record itself repeats.")
    voters: list[Voter] = field(about="The controllers that vote from here on.")

    class Voter(Struct):
        voter_id: int32 = field(about="The controller's number.")
        voter_directory_id: Uuid = field(
            about="The id of its log directory, so that a controller with a new disk counts as another voter."
        )
        endpoints: list[Endpoint] = field(about="Where the other voters reach it.")
        k_raft_version_feature: KRaftVersionFeature = field(
            about="Which versions of the quorum's protocol it can speak."
        )

        class Endpoint(Struct):
            name: str = field(about="What the controller calls the listener, such as CONTROLLER.")
            host: str = field()
            port: uint16 = field()

        class KRaftVersionFeature(Struct):
            min_supported_version: int16 = field(about="The lowest of them.")
            max_supported_version: int16 = field(
                about="The highest of them, which bounds what the quorum may be raised to."
            )
