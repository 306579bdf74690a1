"""UpdateFeatures, UnregisterBroker, DescribeQuorum, AddRaftVoter and RemoveRaftVoter.

Every literal is what Apache Kafka 4.4 answers. Nothing is changed here: other tests share the broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA, ELR = "metadata.version", "eligible.leader.replicas.version"
KRAFT, SHARE, STREAMS = "kraft.version", "share.version", "streams.version"
FAILED = "The update failed for all features since the following feature had an error: "
METADATA_TOPIC = "__cluster_metadata"
NEWEST = 33  # of metadata.version

Wanted = tuple[str, int, int]


def update(connection: Connection, version: int, *wanted: Wanted, **fields: Any) -> Any:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [key(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted]
    return connection.ask(UpdateFeaturesRequest(feature_updates=updates, **fields), version)


def test_older_api_versions_responses_omit_features_with_a_minimum_level_of_0(connection: Connection) -> None:
    def supported(version: int) -> dict[str, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = connection.ask(request, version)
        return {one.name: (one.min_version, one.max_version) for one in answer.supported_features}

    assert supported(3) == {METADATA: (7, NEWEST)}
    from_0 = {f"{name}.version": (0, 1) for name in ("group", "kraft", "streams")} | {SHARE: (0, 2)}
    assert supported(4) == {METADATA: (7, NEWEST), ELR: (0, 1), "transaction.version": (0, 2), **from_0}


def test_a_new_cluster_starts_with_kafkas_feature_levels(connection: Connection) -> None:
    """The level of kraft.version is 0, as the voters are in the properties. No answer lists a feature of level 0."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    told = {one.name: one.max_version_level for one in connection.ask(request, 3).finalized_features}
    told.pop(ELR, None)
    groups = {"group.version": 1, SHARE: 2, STREAMS: 1}
    assert told == {METADATA: NEWEST, "transaction.version": 2, **groups}


@pytest.mark.parametrize("version", range(3))
def test_updating_to_the_current_feature_level_succeeds(connection: Connection, version: int) -> None:
    answer = update(connection, version, (METADATA, NEWEST, UPGRADE))
    assert (answer.error_code, answer.error_message) == (0, None)
    told = [(one.feature, one.error_code, one.error_message) for one in answer.results]
    assert told == ([(METADATA, 0, "NONE")] if version < 2 else [])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ((METADATA, -1, UPGRADE), "A feature version cannot be less than 0."),
        (
            (METADATA, 32, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
    ],
)
def test_an_invalid_feature_level_is_rejected(
    connection: Connection, version: int, wanted: Wanted, reason: str
) -> None:
    answer = update(connection, version, wanted)
    message = f"{FAILED}Invalid update version {wanted[1]} for feature {wanted[0]}. {reason}"
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, message)
    assert answer.results == []


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("nope", 1, "does not support this feature."),
        (METADATA, 99, "only supports versions 7-33"),
        (METADATA, 5, "only supports versions 7-33"),
        (ELR, 2, "only supports versions 0-1"),
        (KRAFT, 2, "only supports versions 0-1"),
        (SHARE, 3, "only supports versions 0-2"),
        (STREAMS, 2, "only supports versions 0-1"),
    ],
)
def test_an_unsupported_feature_level_is_rejected(
    connection: Connection, version: int, name: str, level: int, reason: str
) -> None:
    answer = update(connection, version, (METADATA, NEWEST, UPGRADE), (name, level, UPGRADE))
    begin = f"{FAILED}Invalid update version {level} for feature {name}. Local controller"
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == f"{begin} {broker_id(connection)} {reason}"


@pytest.mark.parametrize("wanted", [(KRAFT, 0, UPGRADE), (KRAFT, 0, SAFE_DOWNGRADE), (SHARE, 2, UPGRADE)])
def test_valid_feature_levels_are_accepted(connection: Connection, wanted: Wanted) -> None:
    assert update(connection, 2, wanted, (STREAMS, 1, UPGRADE), validate_only=True).error_code == ErrorCode.NONE


def test_kraft_version_1_requires_controllers_with_an_address(connection: Connection, differing: Differing) -> None:
    answer = update(connection, 2, (KRAFT, 1, UPGRADE), validate_only=True)
    assert (answer.error_code, answer.error_message) == differing(
        kafka=(0, None),
        minibroker=(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{FAILED}Invalid update version 1 for feature kraft.version. "
            "The voters of this quorum are static: the controller is part of the process.",
        ),
        because="no controller here has a listener of its own, and a record of voters names their listeners",
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("level", [32, 31, 30, 29, 7])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            SAFE_DOWNGRADE,
            "Unsupported metadata.version downgrade from 33 to {level}. Refusing to perform the requested downgrade "
            "because it might delete metadata information.",
        ),
        (
            UNSAFE_DOWNGRADE,
            "Unsupported metadata.version downgrade from 33 to {level}. Unsafe metadata downgrade is not supported in "
            "this version.",
        ),
        (
            9,
            "Invalid update version {level} for feature metadata.version. The controller does not support the given "
            "upgrade type.",
        ),
    ],
)
def test_metadata_version_downgrades_are_rejected(
    connection: Connection, version: int, level: int, kind: int, message: str
) -> None:
    answer = update(connection, version, (METADATA, level, kind), validate_only=True)
    told = FAILED + message.format(level=level)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, told)


@pytest.mark.parametrize("wanted", [(SHARE, 1), (SHARE, 0), (STREAMS, 0), ("group.version", 0), (ELR, 0)])
def test_features_above_their_minimum_can_be_downgraded(connection: Connection, wanted: tuple[str, int]) -> None:
    answer = update(connection, 2, (*wanted, SAFE_DOWNGRADE), validate_only=True)
    assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize("version", [1, 2])
def test_validate_only_updates_no_feature(connection: Connection, version: int) -> None:
    for level, kind in ((0, SAFE_DOWNGRADE), (1, UPGRADE)):
        answer = update(connection, version, (ELR, level, kind), validate_only=True)
        assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize("version", range(3))
def test_an_empty_feature_update_succeeds(connection: Connection, version: int) -> None:
    answer = update(connection, version)
    assert (answer.error_code, answer.error_message, answer.results) == (0, None, [])


@pytest.mark.parametrize("number", [99, -1])
def test_an_unknown_broker_cannot_be_unregistered(connection: Connection, number: int) -> None:
    answer = connection.ask(UnregisterBrokerRequest(broker_id=number), 0)
    message = f"Broker ID {number} is not currently registered"
    assert (answer.error_code, answer.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, message)


def quorum(connection: Connection, version: int, *asked: tuple[str, int]) -> Any:
    shape = DescribeQuorumRequest.TopicData
    topics = [shape(topic_name=name, partitions=[shape.PartitionData(partition_index=index)]) for name, index in asked]
    return connection.ask(DescribeQuorumRequest(topics=topics), version)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_has_one_voter(connection: Connection, version: int) -> None:
    answer = quorum(connection, version, (METADATA_TOPIC, 0))
    here = broker_id(connection)
    (partition,) = answer.topics[0].partitions
    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, here)
    assert partition.leader_epoch >= 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (here, partition.high_watermark, [])
    assert (voter.last_fetch_timestamp == voter.last_caught_up_timestamp == -1) == (version == 0)
    assert [node.node_id for node in answer.nodes] == ([here] if version >= 2 else [])
    assert all(node.listeners for node in answer.nodes)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("asked", [[("nope", 0)], [(METADATA_TOPIC, 1)], [(METADATA_TOPIC, 0), ("nope", 0)]])
def test_describe_quorum_rejects_partitions_other_than_that_of_the_metadata(
    connection: Connection, version: int, asked: list[tuple[str, int]]
) -> None:
    answer = quorum(connection, version, *asked)
    assert (answer.error_code, [topic.topic_name for topic in answer.topics]) == (0, [name for name, _ in asked])
    message = "This server does not host this topic-partition." if version >= 2 else ""
    for topic in answer.topics:
        (partition,) = topic.partitions
        assert (partition.error_code, partition.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


ID = bytes(15) + b"\x09"


@pytest.mark.parametrize("version", range(2))
def test_voters_cannot_be_added(connection: Connection, version: int) -> None:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=1)

    def asked(**fields: Any) -> tuple[int, str]:
        given = {"cluster_id": None, "timeout_ms": 1000, "voter_id": 5, "voter_directory_id": ID, **fields}
        answer = connection.ask(AddRaftVoterRequest(**{"listeners": [listener], **given}), version)
        return answer.error_code, answer.error_message

    message = "Cluster doesn't support adding voter because the kraft.version feature is 0"
    assert asked() == (ErrorCode.UNSUPPORTED_VERSION, message)
    assert asked(cluster_id="wrong")[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert asked(listeners=[])[0] == ErrorCode.INVALID_REQUEST
    assert asked(voter_directory_id=bytes(16))[0] == ErrorCode.INVALID_REQUEST


def test_voters_cannot_be_removed(connection: Connection) -> None:
    def asked(**fields: Any) -> tuple[int, str]:
        given = {"cluster_id": None, "voter_id": 5, "voter_directory_id": ID, **fields}
        answer = connection.ask(RemoveRaftVoterRequest(**given), 0)
        return answer.error_code, answer.error_message

    message = "Cluster doesn't support removing voter because the kraft.version feature is 0"
    assert asked() == (ErrorCode.UNSUPPORTED_VERSION, message)
    assert asked(cluster_id="wrong")[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    message = "Remove voter request didn't include a valid voter"
    assert asked(voter_directory_id=bytes(16)) == (ErrorCode.INVALID_REQUEST, message)


def test_a_new_cluster_has_finalized_the_feature_levels_of_its_release(connection: Connection) -> None:
    answer = connection.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    expected = {METADATA: NEWEST, SHARE: 2, ELR: 1, "group.version": 1, "transaction.version": 2}
    assert {name: levels.get(name) for name in expected} == expected
