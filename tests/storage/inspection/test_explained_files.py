"""Explained files: each byte of an index, a snapshot and a checkpoint, as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.metadata.quorum_state import QuorumState
from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.record import Record
from minibroker.storage.inspection.explained_files import explain_file
from minibroker.storage.inspection.inspected_files import FileKind, InspectedFile
from minibroker.storage.producers.aborted_transactions import TRANSACTION_ENTRY
from minibroker.storage.producers.producer_state import SNAPSHOT_ENTRY
from minibroker.storage.segment_indexes import OffsetIndex, TimeIndex
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named


def explained(kind: FileKind, data: bytes, base_offset: int = 100) -> ExplainedPart:
    part = explain_file(data, InspectedFile(f"{base_offset:020}", kind, base_offset))
    check_that_each_byte_has_one_part(part, 0, len(data))
    return part


def test_offset_index_entries_are_explained_by_offset_and_position() -> None:
    part = explained(FileKind.OFFSET_INDEX, OffsetIndex.ENTRY.pack(5, 4096) + OffsetIndex.ENTRY.pack(9, 8192))
    assert [each.name for each in part.parts] == ["entry [0]", "entry [1]"]
    assert named(part.parts[1], "relative_offset").meaning == "offset 109, with which a batch ends"
    assert named(part.parts[1], "position").value == 8192


def test_zeros_after_the_index_entries_are_explained_as_reserved() -> None:
    part = explained(FileKind.OFFSET_INDEX, OffsetIndex.ENTRY.pack(5, 4096) + bytes(80))
    assert (part.parts[-1].name, part.parts[-1].meaning) == ("reserved", "zeros, for later entries")


def test_time_index_entries_are_explained_as_timestamps() -> None:
    part = explained(FileKind.TIME_INDEX, TimeIndex.ENTRY.pack(1_700_000_000_000, 3))
    assert named(part, "timestamp").meaning == "2023-11-14T22:13:20.000Z"
    assert named(part, "relative_offset").meaning == "offset 103: none up to it has a larger timestamp"


def test_aborted_transactions_are_explained_by_producer_and_offsets() -> None:
    part = explained(FileKind.TRANSACTION_INDEX, TRANSACTION_ENTRY.pack(0, 7, 100, 104, 100))
    assert named(part, "producer_id").value == 7
    assert named(part, "last_offset").value == 104


@pytest.mark.parametrize(("flip", "said"), [(0, "right"), (1, "WRONG: the bytes have ")])
def test_a_snapshot_is_explained_by_checksum_and_producers(flip: int, said: str) -> None:
    entries = (1).to_bytes(4, "big") + SNAPSHOT_ENTRY.pack(7, 1, 4, 104, 4, 1_700_000_000_000, -1, -1)
    data = (1).to_bytes(2, "big") + (crc32c(entries) ^ flip).to_bytes(4, "big") + entries
    part = explained(FileKind.PRODUCER_SNAPSHOT, data)
    assert named(part, "crc").meaning.startswith(said)
    assert named(part, "last_sequence").value == 4
    assert named(part, "transaction_first_offset").meaning == "none"


def test_checkpoint_lines_are_explained_by_their_columns() -> None:
    part = explained(FileKind.LEADER_EPOCHS, b"0\n2\n0 0\n3 17\n")
    assert [(each.name, each.value, each.meaning) for each in part.parts] == [
        ("version", "0", ""),
        ("rows", "2", ""),
        ("row", "0 0", "epoch 0, start_offset 0"),
        ("row", "3 17", "epoch 3, start_offset 17"),
    ]


def test_properties_and_comments_are_explained_as_lines() -> None:
    part = explained(FileKind.META_PROPERTIES, b"#\n#Thu\ncluster.id=x\nversion=1")
    assert [each.name for each in part.parts] == ["comment", "comment", "property", "property"]


def test_the_quorum_state_file_is_explained_field_by_field() -> None:
    part = explained(FileKind.QUORUM_STATE, QuorumState(1, 4, (1,)).encode_as_json())
    assert [(each.name, each.value) for each in part.parts] == [
        ("clusterId", ""),
        ("leaderId", 1),
        ("leaderEpoch", 4),
        ("votedId", -1),
        ("appliedOffset", 0),
        ("currentVoters", '[{"voterId": 1}]'),
        ("data_version", 0),
        ("end", None),
    ]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"a":1} x', b'{"a":' + b"[" * 5000, b"\xff"])
def test_a_quorum_state_file_that_is_no_json_object_is_reported(data: bytes) -> None:
    assert explained(FileKind.CLEAN_SHUTDOWN, data).problem.startswith("no JSON object: ")


@pytest.mark.parametrize("kind", list(FileKind))
@given(data=st.binary(max_size=200))
def test_explaining_arbitrary_bytes_of_a_file_never_raises(kind: FileKind, data: bytes) -> None:
    explained(kind, data)


def test_a_segment_is_explained_by_its_batches() -> None:
    batches = bytes(build_batch([Record(value=b"a")]) + build_batch([Record(value=b"b")], base_offset=1))
    part = explained(FileKind.LOG, batches, 0)
    assert [each.name for each in part.parts] == ["batch [0]", "batch [1]"]
