"""The table of releases, held against one that others have made of Kafka's sources."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from minibroker.protocol.apis import ApiKey
from minibroker.testing.emulation.releases import RELEASES, release_of, versions_of


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_versions_that_kafka_python_knows_of_it(release: str) -> None:
    others = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
    ours = {int(key): (versions[0], versions[-1]) for key, versions in versions_of(release).items()}
    assert ours == {key: tuple(versions) for key, versions in others.items() if key in set(ApiKey)}


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.10.2", "0.10.2"),
        ("0.10.2.1", "0.10.2"),
        ("0.9.0.1", "0.9"),
        ("2.8", "2.8"),
        ("3.9.1", "3.9"),
        ("4.3", "4.3"),
    ],
)
def test_a_version_means_a_release(text: str, release: str) -> None:
    assert release_of(text) == release


@pytest.mark.parametrize("text", ["", "0.7", "5.0", "0.10", "latest"])
def test_a_version_that_is_not_known_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is no release that is known; they are 0.8.2, "):
        release_of(text)
