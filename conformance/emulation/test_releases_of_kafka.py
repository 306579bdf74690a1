"""The tables of releases against each release's own jars, read by Java: versions, features, error codes, defaults.

How that program finds the table in jars of twelve years is in ApiTables.java.
"""

from __future__ import annotations

import subprocess
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from conformance import builds
from minibroker.broker.configs.settings_table import BROKER_SETTINGS
from minibroker.protocol.apis import ApiKey
from minibroker.testing.emulation.emulation import find_newest_error_code, list_highest_feature_levels
from minibroker.testing.emulation.releases import (
    RELEASES,
    is_release_or_newer,
    list_settings_of_release,
    list_versions_of_release,
    parse_release,
)

HERE = Path(__file__).parent
FIRST_BY_LISTENER = "2.8"
FIRST_WITH_KRAFT = "3.3"
# LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, AlterPartition, Envelope, AllocateProducerIds.
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 58, 67}
DECLARED_ONLY = {"0.8.2": {ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT}}  # the server had no handler of them yet

Versions = tuple[int, int]


@pytest.fixture(scope="module")
def lines() -> list[list[str]]:
    """Return what the program prints: release, listener, key, name, first and last version."""
    jars = builds.released_jars()
    needed = [str(jar) for jar in sorted(jars.glob("s*.jar"))]
    asked = [str(jar) for jar in sorted(jars.glob("kafka*.jar"))]
    command = [*builds.JAVA, str(HERE / "ApiTables.java"), *needed, "--", *asked]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    found = [line.split(" ") for line in result.stdout.splitlines()]
    return [[parse_release(jar.removesuffix(".jar").rpartition("-")[2]), *rest] for jar, *rest in found]


@pytest.fixture(scope="module")
def tables(lines: list[list[str]]) -> dict[tuple[str, str], dict[int, Versions]]:
    """By release and listener the first and last version of each API."""
    found: dict[tuple[str, str], dict[int, Versions]] = defaultdict(dict)
    for release, listener, key, _, first, last in lines:
        if listener != "DEFAULTS":
            found[release, listener][int(key)] = (int(first), int(last))
    return found


def listener_of(release: str) -> str:
    """Which of the listeners that a jar tells of is the one that is emulated."""
    if not is_release_or_newer(release, FIRST_BY_LISTENER):
        return "ANY"
    return "BROKER" if is_release_or_newer(release, FIRST_WITH_KRAFT) else "ZK_BROKER"


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_api_versions_of_its_jar(
    release: str, tables: dict[tuple[str, str], dict[int, Versions]]
) -> None:
    not_served = BETWEEN_BROKERS | DECLARED_ONLY.get(release, set())
    theirs = {key: versions for key, versions in tables[release, listener_of(release)].items() if key not in not_served}
    assert {
        int(key): (versions[0], versions[-1]) for key, versions in list_versions_of_release(release).items()
    } == theirs


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_features_of_its_jar(release: str, lines: list[list[str]]) -> None:
    levels = {name: int(level) for found, kind, _, name, _, level in lines if (found, kind) == (release, "FEATURES")}
    assert bool(levels) == is_release_or_newer(release, FIRST_WITH_KRAFT)
    assert list_highest_feature_levels(release) == {name: level for name, level in levels.items() if level}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_error_codes_of_its_jar(release: str, lines: list[list[str]]) -> None:
    codes = [int(code) for found, kind, code, *_ in lines if (found, kind) == (release, "ERRORS")]
    assert max(codes) == find_newest_error_code(release)


@pytest.mark.parametrize("release", ["0.9", "0.10.0", "0.10.2", "0.11", "1.0", "2.0", "2.2", "2.3", "2.4", "2.5"])
def test_settings_of_a_release_have_the_defaults_of_its_server(release: str, lines: list[list[str]]) -> None:
    theirs = {name: value for found, kind, _, name, _, value in lines if (found, kind) == (release, "DEFAULTS")}
    assert len(theirs) == 4
    ours = list_settings_of_release(release)
    todays = {name: str(BROKER_SETTINGS[name].default).lower() for name in theirs}
    assert {name: ours.get(name, todays[name]) for name in theirs} == theirs


@pytest.mark.parametrize("release", ["0.8.2", "0.9"])
def test_a_release_before_the_api_versions_request_has_the_versions_that_its_server_decoded(
    release: str, tables: dict[tuple[str, str], dict[int, Versions]]
) -> None:
    theirs = tables[release, "SERVER"]
    assert len(theirs) == 7  # Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator
    ours = list_versions_of_release(release)
    assert {key: (ours[ApiKey(key)][0], ours[ApiKey(key)][-1]) for key in theirs} == theirs


@pytest.mark.parametrize(("jar", "handles"), [("kafka_2.11-0.8.2.2.jar", False), ("kafka_2.11-0.9.0.1.jar", True)])
def test_the_server_of_0_8_2_had_no_group_membership_handlers(jar: str, handles: bool) -> None:
    with zipfile.ZipFile(builds.released_jars() / jar) as archive:
        constants = archive.read("kafka/server/KafkaApis.class")
    for name in (b"handleJoinGroupRequest", b"handleHeartbeatRequest"):
        assert (name in constants) == handles


def test_inter_broker_apis_are_not_served() -> None:
    assert BETWEEN_BROKERS.isdisjoint(set(ApiKey))
