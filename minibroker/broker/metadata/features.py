"""The cluster's features and their levels (KIP-584, KIP-1022), and the rules for changing them.

The metadata log has the current levels; `handlers/features` handles the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError

METADATA_VERSION = "metadata.version"
NEWEST_METADATA_VERSION = 33  # Kafka's 4.4-IV2, of new clusters
LOWEST_METADATA_VERSION = 7  # 3.3-IV3, the lowest level with which Kafka 4 starts
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"  # KIP-966
TRANSACTION_VERSION: Final = "transaction.version"  # KIP-890: 1 has flexible records, 2 an epoch per transaction

GROUP_VERSION = "group.version"  # 1 has consumer groups of KIP-848
SHARE_VERSION = "share.version"  # 1 has share groups (KIP-932), 2 their dead letter queues (KIP-1191)
STREAMS_VERSION = "streams.version"  # 1 has groups of Kafka Streams (KIP-1071)
KRAFT_VERSION = "kraft.version"  # 1 has the voters of the quorum in the metadata log (KIP-853)

# The levels of metadata.version that changed the format of records; a downgrade cannot cross one of them.
METADATA_CHANGES = (8, 11, 13, 14, 15, 17, 23, 30, 32, 33)


class UpgradeType(IntEnum):
    """The kinds of changes that UpdateFeatures can make to a feature's level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(NamedTuple):
    """A feature: its levels, the level of a new cluster, and the (feature, level) that a level requires."""

    levels: range
    initial: int
    needs: Mapping[int, tuple[str, int]] = {}


FEATURES: dict[str, Feature] = {
    METADATA_VERSION: Feature(range(LOWEST_METADATA_VERSION, NEWEST_METADATA_VERSION + 1), NEWEST_METADATA_VERSION),
    TRANSACTION_VERSION: Feature(range(3), 2),
    ELIGIBLE_LEADER_REPLICAS: Feature(range(2), 1, {1: (METADATA_VERSION, 23)}),
    GROUP_VERSION: Feature(range(2), 1),
    SHARE_VERSION: Feature(range(3), 2),
    STREAMS_VERSION: Feature(range(2), 1),
    KRAFT_VERSION: Feature(range(2), 0),
}

SUPPORTED = {name: feature.levels for name, feature in FEATURES.items()}
INITIAL = {name: feature.initial for name, feature in FEATURES.items() if feature.initial}
NOT_SUPPORTED = range(1)  # level 0 turns a feature off


class FeatureUpdate(NamedTuple):
    """The level that a client requests for a feature; `kind` is an UpgradeType, or an invalid number."""

    name: str
    level: int
    kind: int = UpgradeType.UPGRADE


def check_feature_updates(
    updates: Iterable[FeatureUpdate],
    current_levels: Mapping[str, int],
    supported: Iterable[tuple[str, Mapping[str, range]]],
) -> None:
    """Validate all updates together, each against the feature's current level and those of the others.

    `supported` has the name, for messages, and the levels by feature of each node that must support the new levels.
    Raises KafkaError(INVALID_UPDATE_VERSION).
    """
    wanted = list(updates)
    proposed = {**current_levels, **{update.name: update.level for update in wanted}}
    known = list(supported)
    for update in wanted:
        _check_upgrade_type(update)
        for who, levels in known:
            _check_level_supported(update, who, levels.get(update.name, NOT_SUPPORTED))
        _check_upgrade_or_downgrade_allowed(update, current_levels.get(update.name, 0))
        if update.name == METADATA_VERSION:
            _check_downgrade_is_safe(update, current_levels[METADATA_VERSION])
        else:
            _check_feature_dependencies(update, proposed)
        if update.name == KRAFT_VERSION:
            _check_kraft_version_change(update, current_levels.get(update.name, 0))


def _check_upgrade_type(update: FeatureUpdate) -> None:
    if update.kind not in UpgradeType.__members__.values():
        raise _make_invalid_update_error(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _make_invalid_update_error(update, "A feature version cannot be less than 0.")


def _check_level_supported(update: FeatureUpdate, subject: str, levels: range) -> None:
    """Raise KafkaError(INVALID_UPDATE_VERSION) unless `subject`, which has these levels, supports the new one."""
    if update.level in levels:
        return
    if levels[-1] == 0:
        raise _make_invalid_update_error(update, f"{subject} does not support this feature.")
    raise _make_invalid_update_error(update, f"{subject} only supports versions {levels[0]}-{levels[-1]}")


def _check_upgrade_or_downgrade_allowed(update: FeatureUpdate, current_level: int) -> None:
    if update.level < current_level and update.kind == UpgradeType.UPGRADE:
        raise _make_invalid_update_error(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.level > current_level and update.kind != UpgradeType.UPGRADE:
        raise _make_invalid_update_error(update, "Can't downgrade to a newer version.")


def _check_downgrade_is_safe(update: FeatureUpdate, current_level: int) -> None:
    """Check that a lower metadata.version has the same record formats."""
    if not any(update.level < change <= current_level for change in METADATA_CHANGES):
        return
    reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    if update.kind == UpgradeType.UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    message = f"Unsupported metadata.version downgrade from {current_level} to {update.level}. {reason}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_kraft_version_change(update: FeatureUpdate, current_level: int) -> None:
    """Refuse to move the quorum's voters into the metadata log, as that needs a controller with an address."""
    if update.level < current_level:
        raise _make_invalid_update_error(update, "Can't downgrade the version of this feature.")
    if update.level > current_level:
        raise _make_invalid_update_error(
            update, "The voters of this quorum are static: the controller is part of the process."
        )


def _check_feature_dependencies(update: FeatureUpdate, proposed: Mapping[str, int]) -> None:
    if update.name not in FEATURES:
        raise _make_invalid_update_error(update, f"Feature {update.name} not found.")
    need = FEATURES[update.name].needs.get(update.level)
    if need is not None and proposed.get(need[0], 0) < need[1]:
        reason = f"because it depends on {need[0]} level {need[1]}"
        raise _make_invalid_update_error(update, f"{update.name} could not be set to {update.level} {reason}")


def _make_invalid_update_error(update: FeatureUpdate, reason: str) -> KafkaError:
    message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
