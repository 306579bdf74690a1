"""The share coordinator's APIs (KIP-932): states are begun, read, written, summed up and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conformance.wire.connection import Connection
from conformance.wire.requests import metadata_of, repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from minibroker.protocol.primitives import format_uuid

SHARE_KEY = 2
Batch = tuple[int, int, int, int]  # first and last offset, state, and delivery count


class States:
    """The state of partition 0 of a topic for a group."""

    def __init__(self, connection: Connection, group: str, topic_id: bytes) -> None:
        self.connection = connection
        self.group = group
        self.topic_id = topic_id

    def find(self) -> None:
        """Look up the coordinator until there is one, as the first look makes its topic."""
        request = FindCoordinatorRequest(
            key_type=SHARE_KEY, coordinator_keys=[f"{self.group}:{format_uuid(self.topic_id)}:0"]
        )
        repeated(lambda: self.connection.ask(request, 6).coordinators[0].error_code, lambda code: code == 0)
        repeated(self.read, lambda answer: answer.error_code == ErrorCode.INVALID_REQUEST)

    def _ask(self, request: Any, topic: Any, version: int = 0, **fields: Any) -> Any:
        partition = topic.PartitionData(**{"partition": 0, **fields})
        asked = request(group_id=self.group, topics=[topic(topic_id=self.topic_id, partitions=[partition])])
        (result,) = self.connection.ask(asked, version).results
        assert result.topic_id == self.topic_id
        return result.partitions[0]

    def begin(self, state_epoch: int, start_offset: int, **fields: Any) -> Any:
        request = InitializeShareGroupStateRequest
        return self._ask(
            request, request.InitializeStateData, state_epoch=state_epoch, start_offset=start_offset, **fields
        )

    def read(self, leader_epoch: int = 0, **fields: Any) -> Any:
        request = ReadShareGroupStateRequest
        return self._ask(request, request.ReadStateData, leader_epoch=leader_epoch, **fields)

    def write(self, *batches: Batch, **fields: Any) -> Any:
        request = WriteShareGroupStateRequest
        shape = request.WriteStateData.PartitionData.StateBatch
        listed = [
            shape(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ]
        default = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 5, "delivery_complete_count": 1}
        return self._ask(request, request.WriteStateData, 1, state_batches=listed, **{**default, **fields})

    def sum_up(self, **fields: Any) -> Any:
        request = ReadShareGroupStateSummaryRequest
        return self._ask(request, request.ReadStateSummaryData, 1, leader_epoch=0, **fields)

    def delete(self) -> Any:
        return self._ask(DeleteShareGroupStateRequest, DeleteShareGroupStateRequest.DeleteStateData)


@pytest.fixture
def states(connection: Connection, group: str, name: str) -> States:
    made = States(connection, group, metadata_of(connection, name).topic_id)
    made.find()
    return made


def batches_of(answer: Any) -> Sequence[Batch]:
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in answer.state_batches
    ]


def test_a_share_state_is_initialized_written_and_deleted(states: States) -> None:
    assert states.begin(0, 5).error_code == 0
    read = states.read()
    assert (read.error_code, read.state_epoch, read.start_offset, batches_of(read)) == (0, 0, 5, [])
    assert states.write((5, 9, 0, 1), (7, 7, 2, 1)).error_code == 0
    assert batches_of(states.read()) == [(5, 6, 0, 1), (7, 7, 2, 1), (8, 9, 0, 1)]
    told = states.sum_up()
    assert (told.error_code, told.state_epoch, told.start_offset, told.delivery_complete_count) == (0, 0, 5, 1)
    assert states.write(start_offset=8, delivery_complete_count=0).error_code == 0
    read = states.read()
    assert (read.start_offset, batches_of(read)) == (8, [(8, 9, 0, 1)])
    assert states.delete().error_code == 0
    assert states.read().error_code == ErrorCode.INVALID_REQUEST
    assert states.delete().error_code == 0


def test_an_uninitialized_share_state_is_reported(states: States) -> None:
    assert states.read().error_code == ErrorCode.INVALID_REQUEST
    assert states.write((5, 9, 0, 1)).error_code == ErrorCode.INVALID_REQUEST
    told = states.sum_up()
    assert (told.error_code, told.start_offset, told.delivery_complete_count) == (0, -1, -1)


def test_older_state_epochs_are_fenced(states: States) -> None:
    assert states.begin(4, 5).error_code == 0
    assert states.begin(3, 5).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert states.read(leader_epoch=2).error_code == 0
    assert states.read(leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert states.write((5, 9, 0, 1), state_epoch=4, leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert states.write((5, 9, 0, 1), state_epoch=3, leader_epoch=2).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert states.write((5, 9, 0, 1), state_epoch=4, leader_epoch=2).error_code == 0
    assert states.begin(4, 7).error_code == 0
    read = states.read(leader_epoch=2)
    assert (read.start_offset, batches_of(read)) == (7, [])


def test_share_states_of_unknown_partitions_are_rejected(states: States) -> None:
    assert states.read(partition=-1).error_code == ErrorCode.INVALID_REQUEST
    assert states.begin(0, 5, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    states.topic_id = bytes(15) + b"\x07"
    assert states.begin(0, 5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert states.sum_up().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("partition", [0, 9])
def test_negative_epochs_and_missing_states_are_reported_before_unknown_partitions(
    states: States, partition: int
) -> None:
    uninitialized = "operation on uninitialized share partition not allowed."
    negative_leader, negative_state = (f"The {one} epoch cannot be a negative number." for one in ("leader", "state"))
    answers = [
        (states.read(leader_epoch=-1, partition=partition), negative_leader),
        (states.read(partition=partition), f"Read {uninitialized}"),
        (states.write(leader_epoch=-1, state_epoch=-1, partition=partition), negative_leader),
        (states.write(state_epoch=-1, partition=partition), negative_state),
        (states.write(partition=partition), f"Write {uninitialized}"),
        (states.begin(-1, 5, partition=partition), negative_state),
    ]
    for answer, message in answers:
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_share_state_errors_have_kafkas_messages(states: States) -> None:
    assert states.begin(1, 5, partition=9).error_message == "This server does not host this topic-partition."
    assert states.begin(1, 5).error_code == 0
    older = "The leader epoch in the request is older than the epoch on the broker."
    assert states.read(leader_epoch=2).error_code == 0
    assert states.read(leader_epoch=1).error_message == older
    other = "The coordinator rejected the request because the state epoch did not match."
    assert states.write(state_epoch=0, leader_epoch=2).error_message == other


def test_a_share_state_request_without_a_group_has_no_results(connection: Connection, states: States) -> None:
    for request in (ReadShareGroupStateRequest, DeleteShareGroupStateRequest, ReadShareGroupStateSummaryRequest):
        (topic,) = (getattr(request, each) for each in dir(request) if each.endswith("Data"))
        asked = topic(topic_id=states.topic_id, partitions=[topic.PartitionData(partition=0)])
        assert connection.ask(request(group_id="", topics=[asked]), 0).results == []
