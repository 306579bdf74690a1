"""The cluster's features and their levels (KIP-584): what we know of, and what a new cluster starts with.

Which level is in force is in the metadata log.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30  # Kafka's 4.3-IV0, whose record versions the metadata log is written in

LOWEST_METADATA_VERSION = 7  # 3.3-IV3, the lowest that Kafka 4 starts with

SUPPORTED = {METADATA_VERSION: range(LOWEST_METADATA_VERSION, METADATA_VERSION_LEVEL + 1)}
INITIAL = {METADATA_VERSION: METADATA_VERSION_LEVEL}
