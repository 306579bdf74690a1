"""Log directories that take no new replicas, by the setting `cordoned.log.dirs` of each broker (KIP-1066).

A broker whose directories are all cordoned gets no new replicas. Nodes of one process share their directories, and yet
each has its own list: the log of a new partition avoids the directories that one of its brokers does not want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minibroker.broker.metadata.features import LOWEST_METADATA_VERSION, METADATA_VERSION
from minibroker.broker.metadata.image import Image
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE

CORDONED = "cordoned.log.dirs"
ALL = "*"
FIRST_LEVEL = 30  # of metadata.version: 4.3-IV0


def supports_cordoning(image: Image) -> bool:
    """Return whether the level of metadata.version is high enough."""
    return image.features.get(METADATA_VERSION, LOWEST_METADATA_VERSION) >= FIRST_LEVEL


def find_cordoned_paths(image: Image, node_id: int, static_paths: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Return those of `paths` that a broker has cordoned by its dynamic config, or without one, by `static_paths`."""
    if not supports_cordoning(image):
        return []
    own = image.configs.get((BROKER_RESOURCE, str(node_id)), {}).get(CORDONED)
    wanted = static_paths if own is None else [part.strip() for part in own.split(",")]
    return [path for path in paths if ALL in wanted or path in wanted]


def find_cordoned_paths_to_avoid(
    replicas: Iterable[int], paths: Sequence[str], list_cordoned_paths: Callable[[int], Sequence[str]]
) -> set[str]:
    """Return the paths that the brokers of a new log have cordoned; those of the first one, if that leaves none.

    `list_cordoned_paths` returns the paths that a broker has cordoned.
    """
    lists = [found for node in replicas if len(found := list_cordoned_paths(node)) < len(paths)]
    unwanted = {path for found in lists for path in found}
    return unwanted if len(unwanted) < len(paths) else set(lists[0])
