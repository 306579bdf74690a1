"""Control records against those that Kafka writes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.messages.control_records import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import (
    ControlType,
    QuorumMessage,
    decode_control_message,
    decode_control_type,
    encode_control_key,
    make_control_record,
    make_transaction_marker,
)
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.records.samples import JAVA, T

DIRECTORY = bytes.fromhex("0123456789abcdef0011223344556677")
VOTER = LeaderChangeMessage.Voter
ENDPOINT = VotersRecord.Voter.Endpoint(name="CONTROLLER", host="localhost", port=65535)
FEATURE = VotersRecord.Voter.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
QUORUM: dict[str, tuple[ControlType, int, QuorumMessage]] = {
    "leader change": (
        ControlType.LEADER_CHANGE,
        5,
        LeaderChangeMessage(
            leader_id=1, voters=[VOTER(voter_id=1), VOTER(voter_id=2)], granting_voters=[VOTER(voter_id=1)]
        ),
    ),
    "snapshot header": (ControlType.SNAPSHOT_HEADER, 0, SnapshotHeaderRecord(last_contained_log_timestamp=T - 1)),
    "snapshot footer": (ControlType.SNAPSHOT_FOOTER, 0, SnapshotFooterRecord()),
    "kraft version": (ControlType.KRAFT_VERSION, 0, KRaftVersionRecord(k_raft_version=1)),
    "kraft voters": (
        ControlType.KRAFT_VOTERS,
        0,
        VotersRecord(
            voters=[
                VotersRecord.Voter(
                    voter_id=1, voter_directory_id=DIRECTORY, endpoints=[ENDPOINT], k_raft_version_feature=FEATURE
                )
            ]
        ),
    ),
}


class TestMarkers:
    @pytest.mark.parametrize(("name", "committed"), [("abort", False), ("commit", True)])
    def test_marker_batches_equal_those_of_kafka(self, name: str, committed: bool) -> None:
        marker = make_transaction_marker(committed=committed, coordinator_epoch=12, timestamp=T)
        batch = build_batch(
            [marker],
            base_offset=5,
            producer_id=77,
            producer_epoch=3,
            transactional=True,
            control=True,
            leader_epoch=9,
        )
        assert batch == JAVA[name]

    @pytest.mark.parametrize(("name", "kind"), [("abort", ControlType.ABORT), ("commit", ControlType.COMMIT)])
    def test_transaction_markers_are_decoded(self, name: str, kind: ControlType) -> None:
        (record,) = iterate_records_of_batch(JAVA[name])
        assert check_batch(JAVA[name]).is_control
        assert decode_control_type(record.key) == kind
        assert decode_control_message(record) == EndTxnMarker(coordinator_epoch=12)

    def test_known_fields_of_later_marker_versions_are_decoded(self) -> None:
        later = Record(key=encode_control_key(ControlType.COMMIT), value=b"\0\x01" + b"\0\0\0\x07" + b"more")
        assert decode_control_message(later) == EndTxnMarker(coordinator_epoch=7)


class TestQuorum:
    @pytest.mark.parametrize("name", QUORUM)
    def test_quorum_batches_equal_those_of_kafka(self, name: str) -> None:
        _, offset, message = QUORUM[name]
        record = make_control_record(message, timestamp=T)
        assert build_batch([record], base_offset=offset, control=True, leader_epoch=9) == JAVA[name]

    @pytest.mark.parametrize("name", QUORUM)
    def test_quorum_control_records_are_decoded(self, name: str) -> None:
        kind, _, message = QUORUM[name]
        (record,) = iterate_records_of_batch(JAVA[name])
        assert decode_control_type(record.key) == kind
        assert decode_control_message(record) == message

    def test_a_quorum_control_record_is_decoded_in_the_version_that_it_contains(self) -> None:
        message = LeaderChangeMessage(version=1, leader_id=1, voters=[VOTER(voter_id=1, voter_directory_id=DIRECTORY)])
        assert decode_control_message(make_control_record(message, timestamp=T)) == message

    def test_a_quorum_message_of_a_later_version_is_decoded_as_the_newest_known_version(self) -> None:
        record = make_control_record(KRaftVersionRecord(k_raft_version=1), timestamp=T)
        later = record._replace(value=b"\0\x07" + (record.value or b"")[2:])
        assert decode_control_message(later) == KRaftVersionRecord(version=7, k_raft_version=1)


class TestMalformed:
    def test_control_types_of_a_later_kafka_are_ignored(self) -> None:
        for number in (7, -1, 32767):
            key = b"\0\0" + number.to_bytes(2, "big", signed=True)
            assert decode_control_type(key) is None
            assert decode_control_message(Record(key=key, value=None)) is None

    @pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
    def test_malformed_control_keys_are_rejected(self, key: bytes | None) -> None:
        with pytest.raises(InvalidRecords):
            decode_control_type(key)

    def test_bytes_after_the_type_in_a_control_key_are_ignored(self) -> None:
        assert decode_control_type(b"\0\x01\0\x01more") == ControlType.COMMIT

    @for_each("kind", ControlType)
    @for_each("value", [None, b"", b"\0", b"\xff\xff\0\0\0\0\0\0"])
    def test_malformed_control_values_are_rejected(self, kind: ControlType, value: bytes | None) -> None:
        with pytest.raises(InvalidRecords):
            decode_control_message(Record(key=encode_control_key(kind), value=value))

    @given(st.sampled_from(ControlType), st.binary(max_size=60))
    def test_arbitrary_control_values_are_decoded_or_rejected(self, kind: ControlType, value: bytes) -> None:
        with suppress(InvalidRecords):
            decode_control_message(Record(key=encode_control_key(kind), value=value))
