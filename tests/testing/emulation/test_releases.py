"""The table of releases, held against one that others have made of Kafka's sources."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from minibroker.protocol.apis import ApiKey
from minibroker.testing.emulation.releases import RELEASES, list_versions_of_release, parse_release

# kafka-python has asked 4.0.0, the only one of 4.x without JoinGroup 0 and 1 (KAFKA-19444), and up to 3.9 brokers with
# ZooKeeper, where ours have KRaft from 3.3 on.
IN_4_0_0 = {ApiKey.JOIN_GROUP}
WITH_KRAFT = {
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN),
    *(ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    *(ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER, ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    *(ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER),
}
OF_TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}  # not announced without a plugin
NEWER_THAN_IT = ("4.4",)


def not_asked(release: str) -> set[ApiKey]:
    if release == "4.0":
        return IN_4_0_0
    return WITH_KRAFT if RELEASES.index("3.3") <= RELEASES.index(release) < RELEASES.index("4.0") else set()


@pytest.mark.parametrize("release", [release for release in RELEASES if release not in NEWER_THAN_IT])
def test_a_release_has_the_api_versions_known_to_kafka_python(release: str) -> None:
    others = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
    compared = set(ApiKey) - not_asked(release) - OF_TELEMETRY
    ours = {int(key): (each[0], each[-1]) for key, each in list_versions_of_release(release).items() if key in compared}
    assert ours == {key: tuple(versions) for key, versions in others.items() if key in compared}


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.10.2", "0.10.2"),
        ("0.10.2.1", "0.10.2"),
        ("0.9.0.1", "0.9"),
        ("2.8", "2.8"),
        ("3.9.1", "3.9"),
        ("4.3", "4.3"),
        ("4.4.0", "4.4"),
    ],
)
def test_a_version_maps_to_a_release(text: str, release: str) -> None:
    assert parse_release(text) == release


@pytest.mark.parametrize("text", ["", "0.7", "5.0", "0.10", "latest"])
def test_an_unknown_release_name_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a known release; they are 0.8.2, "):
        parse_release(text)
