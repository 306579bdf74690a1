"""The cluster's features and their levels (KIP-584, KIP-1022): which there are, and which may be set when.

Which level is in force is in the metadata log; how a client asks for another is in `handlers/features`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30  # Kafka's 4.3-IV0, whose record versions the metadata log is written in
LOWEST_METADATA_VERSION = 7  # 3.3-IV3, the lowest that Kafka 4 starts with
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"  # KIP-966

# The levels of metadata.version with which the form of the records changed; nobody may go back behind one of them.
METADATA_CHANGES = (8, 11, 13, 14, 15, 17, 23, 30)


class UpgradeType(IntEnum):
    """What UpdateFeatures may do with a feature's level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(NamedTuple):
    """One feature: its levels, the one that a new cluster begins with, and what else a level needs (feature, level)."""

    levels: range
    initial: int
    needs: Mapping[int, tuple[str, int]] = {}


FEATURES: dict[str, Feature] = {
    METADATA_VERSION: Feature(range(LOWEST_METADATA_VERSION, METADATA_VERSION_LEVEL + 1), METADATA_VERSION_LEVEL),
    ELIGIBLE_LEADER_REPLICAS: Feature(range(2), 0, {1: (METADATA_VERSION, 23)}),
}

SUPPORTED = {name: feature.levels for name, feature in FEATURES.items()}
INITIAL = {name: feature.initial for name, feature in FEATURES.items() if feature.initial}
