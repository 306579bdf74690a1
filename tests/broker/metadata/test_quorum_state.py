"""The quorum's file: Kafka's two forms of it, and texts that are none."""

from __future__ import annotations

import pytest

from minibroker.broker.metadata.quorum_state import MalformedQuorumState, QuorumState, parse_quorum_state
from tests.cases import for_each

# As Apache Kafka 4.3 wrote them, with kraft.version 0 and 1.
VERSION_0 = (
    b'{"clusterId":"","leaderId":0,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":0}],"data_version":0}'
)
VERSION_1 = b'{"leaderId":0,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


@pytest.mark.parametrize(
    ("text", "state"), [(VERSION_0, QuorumState(0, 2, (0,), 0)), (VERSION_1, QuorumState(0, 2, (), 1))]
)
def test_kafkas_quorum_state_is_read_and_written_byte_for_byte(text: bytes, state: QuorumState) -> None:
    assert parse_quorum_state(text) == state
    assert state.encode_as_json() == text


def test_a_node_elected_alone_is_the_only_voter() -> None:
    assert QuorumState().make_state_after_election(3, 1) == QuorumState(3, 1, (3,), 0)


def test_an_election_keeps_the_voters_and_the_file_version() -> None:
    assert QuorumState(1, 4, (1, 2, 3), 0).make_state_after_election(2, 5) == QuorumState(2, 5, (1, 2, 3), 0)
    assert QuorumState(1, 4, (), 1).make_state_after_election(2, 5) == QuorumState(2, 5, (), 1)


@for_each(
    "text",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"[]",
        b"{}",
        b'{"leaderId":0,"leaderEpoch":"x","data_version":0}',
        b'{"leaderId":0,"leaderEpoch":1,"currentVoters":[{}],"data_version":0}',
        b'{"leaderId":0,"leaderEpoch":1,"data_version":2}',
    ],
)
def test_an_invalid_quorum_state_text_is_rejected(text: bytes) -> None:
    with pytest.raises(MalformedQuorumState):
        parse_quorum_state(text)
