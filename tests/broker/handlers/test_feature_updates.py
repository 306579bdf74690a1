"""UpdateFeatures: levels that go up and down, one request made whole or not at all, and what a level brings with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS, INITIAL, KRAFT_VERSION, METADATA_VERSION
from minibroker.broker.metadata.quorum_state import QuorumState
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.cluster import AddRaftVoterRequest, ApiVersionsRequest, UpdateFeaturesRequest
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.control_records import KRaftVersionRecord
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_control_record
from tests.broker.harness import Harness, served_versions
from tests.broker.metadata_writing import FOOTER, HEADER, write_snapshot
from tests.cases import for_each

VERSIONS = served_versions(UpdateFeaturesRequest)
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FAILED = "The update failed for all features since the following feature had an error: "
MINIMUM_ISR = "min.insync.replicas"


def update(harness: Harness, *wanted: tuple[str, int, int], version: int | None = None, **fields: Any) -> Any:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [key(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted]
    return harness.request(UpdateFeaturesRequest(feature_updates=updates, **fields), version)


def refused(harness: Harness, *wanted: tuple[str, int, int]) -> str:
    """Why an update is refused."""
    before = dict(harness.cluster.image.features)
    answer = update(harness, *wanted)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert harness.cluster.image.features == before
    message: str = answer.error_message
    assert message.startswith(FAILED)
    return message.removeprefix(FAILED)


def told(harness: Harness) -> dict[str, int]:
    """The levels that ApiVersions tells of."""
    answer = harness.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    return {one.name: one.max_version_level for one in answer.finalized_features}


def at_level(harness: Harness, level: int) -> None:
    """Make the cluster one that an older Kafka has formatted."""
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)])
    without_eligible_leaders(harness)


def without_eligible_leaders(harness: Harness) -> None:
    """Make the cluster one that was formatted before these became final by default."""
    harness.cluster.commit_metadata_records(
        [
            records.FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=0),
            records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MINIMUM_ISR, value=None),
        ]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_feature_upgrade_is_recorded_and_kept(harness: Harness, version: int) -> None:
    at_level(harness, 17)
    wanted = (METADATA_VERSION, 33, UPGRADE), (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE)
    answer = update(harness, *wanted, version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    told = [(one.feature, one.error_code, one.error_message) for one in answer.results]
    expected = [(METADATA_VERSION, 0, "NONE"), (ELIGIBLE_LEADER_REPLICAS, 0, "NONE")]
    assert told == (expected if version < 2 else [])
    harness.restart()
    assert harness.cluster.image.features == {**INITIAL, ELIGIBLE_LEADER_REPLICAS: 1}


def test_metadata_records_are_written_in_the_version_of_the_new_feature_level(harness: Harness) -> None:
    at_level(harness, 14)
    harness.create_topic("before")
    update(harness, (METADATA_VERSION, 30, UPGRADE))
    harness.create_topic("after")
    harness.restart()
    directory_ids = [harness.partition(name).directories for name in ("before", "after")]
    assert directory_ids[1] != [bytes(16)]
    assert directory_ids[0] == directory_ids[1]  # recorded with the start, as the level allows it now


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 1])
def test_validate_only_updates_no_feature(harness: Harness, version: int) -> None:
    wanted = (ELIGIBLE_LEADER_REPLICAS, 0, SAFE_DOWNGRADE)
    assert update(harness, wanted, version=version, validate_only=True).error_code == ErrorCode.NONE
    assert harness.cluster.image.features == INITIAL


@pytest.mark.parametrize(
    ("before", "after", "kind", "allowed"),
    [
        (29, 25, SAFE_DOWNGRADE, True),  # from 23 on to 29 the records have one form
        (29, 23, UNSAFE_DOWNGRADE, True),
        (33, 32, SAFE_DOWNGRADE, False),
        (32, 31, UNSAFE_DOWNGRADE, False),
        (31, 30, SAFE_DOWNGRADE, True),
        (30, 29, SAFE_DOWNGRADE, False),
        (29, 22, SAFE_DOWNGRADE, False),
        (10, 8, SAFE_DOWNGRADE, True),
        (11, 10, UNSAFE_DOWNGRADE, False),
    ],
)
def test_the_metadata_version_can_be_downgraded_only_if_its_records_keep_their_form(
    harness: Harness, before: int, after: int, kind: int, allowed: bool
) -> None:
    at_level(harness, before)
    if allowed:
        assert update(harness, (METADATA_VERSION, after, kind)).error_code == ErrorCode.NONE
        assert harness.cluster.image.features[METADATA_VERSION] == after
    else:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        if kind == UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        message = f"Unsupported metadata.version downgrade from {before} to {after}. {reason}"
        assert refused(harness, (METADATA_VERSION, after, kind)) == message


@for_each(
    ("wanted", "reason"),
    [
        (("nope", 1, UPGRADE), "Local controller 1 does not support this feature."),
        ((METADATA_VERSION, 34, UPGRADE), "Local controller 1 only supports versions 7-33"),
        ((METADATA_VERSION, 0, SAFE_DOWNGRADE), "Local controller 1 only supports versions 7-33"),
        ((METADATA_VERSION, -1, SAFE_DOWNGRADE), "A feature version cannot be less than 0."),
        ((ELIGIBLE_LEADER_REPLICAS, 2, UPGRADE), "Local controller 1 only supports versions 0-1"),
        ((ELIGIBLE_LEADER_REPLICAS, 1, SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        ((METADATA_VERSION, 29, 0), "The controller does not support the given upgrade type."),
        ((METADATA_VERSION, 29, 4), "The controller does not support the given upgrade type."),
        (
            (METADATA_VERSION, 29, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (("nope", 0, UPGRADE), "Feature nope not found."),
        (
            (KRAFT_VERSION, 1, UPGRADE),
            "The voters of this quorum are static: the controller is part of the process.",
        ),
    ],
)
def test_invalid_feature_levels_are_rejected_with_the_reason(
    harness: Harness, wanted: tuple[str, int, int], reason: str
) -> None:
    without_eligible_leaders(harness)
    message = f"Invalid update version {wanted[1]} for feature {wanted[0]}. {reason}"
    assert refused(harness, wanted) == message


def test_feature_levels_survive_a_restart(harness: Harness) -> None:
    """Another Kafka may start on the directory."""
    wanted = {"share.version": 1, "transaction.version": 1}
    updates = [(name, level, SAFE_DOWNGRADE) for name, level in wanted.items()]
    assert update(harness, *updates, (KRAFT_VERSION, 0, UPGRADE)).error_code == ErrorCode.NONE
    harness.restart()
    assert harness.cluster.image.features == {**INITIAL, **wanted}
    assert told(harness).items() >= wanted.items()


@pytest.mark.parametrize("formatted", [True, False], ids=["formatted with voters", "upgraded by a Kafka"])
def test_a_kraft_version_is_accepted_if_the_metadata_log_has_its_record(tmp_path: Path, formatted: bool) -> None:
    """`kafka-features upgrade --release-version 4.3` asks for kraft.version, too."""
    level = build_batch([make_control_record(KRaftVersionRecord(k_raft_version=1), timestamp=0)], control=True)
    if formatted:
        directory = tmp_path / "data" / "__cluster_metadata-0"
        directory.mkdir(parents=True)
        write_snapshot(directory, 0, 0, HEADER + level + FOOTER)
    with Harness(tmp_path) as harness:
        if not formatted:
            log = harness.cluster.metadata_log
            log.storage.append(memoryview(level), [read_header(level)], log.leader_epoch)
            harness.restart()
        levels = {**INITIAL, KRAFT_VERSION: 1}
        answer = update(harness, *((name, level, UPGRADE) for name, level in levels.items()))
        assert (answer.error_code, told(harness)) == (ErrorCode.NONE, levels)
        harness.restart()
        assert told(harness) == levels


def test_voters_written_by_kafka_stay_in_the_log(harness: Harness) -> None:
    assert KRAFT_VERSION not in told(harness)
    state = harness.directory / "data" / "__cluster_metadata-0" / "quorum-state"
    state.write_bytes(QuorumState(1, 5, version=1).encode_as_json())
    harness.restart()
    assert told(harness)[KRAFT_VERSION] == 1
    assert update(harness, (KRAFT_VERSION, 1, UPGRADE)).error_code == ErrorCode.NONE
    assert refused(harness, (KRAFT_VERSION, 0, SAFE_DOWNGRADE)).endswith("Can't downgrade the version of this feature.")
    assert KRAFT_VERSION not in harness.cluster.image.features
    listener = AddRaftVoterRequest.Listener(name="a", host="b")
    asked = AddRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=b"x" * 16, listeners=[listener])
    answer = harness.request(asked, 0)
    message = "Cluster doesn't support adding voter because all of it is one process"
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, message)


def test_a_feature_upgrade_requires_the_features_it_depends_on(harness: Harness) -> None:
    at_level(harness, 17)
    message = f"{ELIGIBLE_LEADER_REPLICAS} could not be set to 1 because it depends on metadata.version level 23"
    assert refused(harness, (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE)).endswith(message)
    both = (METADATA_VERSION, 23, UPGRADE), (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE)
    assert update(harness, *both).error_code == ErrorCode.NONE


def test_one_invalid_update_rejects_all_others(harness: Harness) -> None:
    assert "feature nope" in refused(harness, (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE), ("nope", 1, UPGRADE))


def test_an_offline_broker_must_support_the_feature_level(harness: Harness) -> None:
    old = records.RegisterBrokerRecord(broker_id=7, incarnation_id=bytes(16), broker_epoch=1)
    old.features = [
        records.RegisterBrokerRecord.BrokerFeature(
            name=METADATA_VERSION, min_supported_version=7, max_supported_version=25
        )
    ]
    at_level(harness, 25)
    harness.cluster.commit_metadata_records([old])
    assert refused(harness, (METADATA_VERSION, 30, UPGRADE)).endswith("Broker 7 only supports versions 7-25")
    wanted = (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE)
    assert refused(harness, wanted).endswith("Broker 7 does not support this feature.")


def alter(harness: Harness, name: str, text: str | None) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    line = resource.AlterableConfig(name=MINIMUM_ISR, config_operation=0 if text else 1, value=text)
    asked = resource(resource_type=BROKER_RESOURCE, resource_name=name, configs=[line])
    (answer,) = harness.request(IncrementalAlterConfigsRequest(resources=[asked])).responses
    return answer.error_code, answer.error_message


def test_eligible_leader_replicas_require_one_cluster_wide_min_insync_replicas(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={MINIMUM_ISR: "2"}) as harness:
        without_eligible_leaders(harness)
        assert alter(harness, "1", "3") == (ErrorCode.NONE, None)
        update(harness, (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE))
        assert harness.cluster.settings[MINIMUM_ISR] == 2
        assert harness.cluster.image.get_configs(BROKER_RESOURCE, "") == {MINIMUM_ISR: "2"}
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        assert alter(harness, "1", "3") == (ErrorCode.INVALID_CONFIG, message)
        assert alter(harness, "1", None) == (ErrorCode.INVALID_CONFIG, message)
        message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        assert alter(harness, "", None) == (ErrorCode.INVALID_CONFIG, message)
        assert alter(harness, "", "1") == (ErrorCode.NONE, None)


def test_changing_min_insync_replicas_clears_the_eligible_leader_replicas(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2, 1])], overrides={MINIMUM_ISR: "2"})
        update(harness, (ELIGIBLE_LEADER_REPLICAS, 1, UPGRADE))
        harness.restart(nodes=[1])
        assert harness.partition("t").eligible_leader_replicas == [2]
        harness.cluster.controller.change_config(TOPIC_RESOURCE, "t", {MINIMUM_ISR: "1"})
        assert harness.partition("t").eligible_leader_replicas == []
