"""Going through all partitions, or groups, without holding up anybody: a slice, then whoever waits, the next slice.

What is done with each is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from minibroker.broker.cluster import Cluster
from minibroker.broker.topics import Partition

SLICE_MS = 2

Item = TypeVar("Item")
Then = Callable[[], None]


def each_partition(cluster: Cluster, chore: Callable[[Partition], None], then: Then) -> None:
    """Do the chore for each partition whose log is here and in use, and then `then`.

    A topic that is made or deleted meanwhile is as good as one that was before.
    """
    in_slices(cluster, chore, _partitions(cluster), then)


def _partitions(cluster: Cluster) -> Iterator[Partition]:
    for topic in list(cluster.image.topics.values()):
        yield from (each for each in topic.partitions if each.is_here and each.log.in_use)


def in_slices(cluster: Cluster, chore: Callable[[Item], None], items: Iterator[Item], then: Then) -> None:
    """Do the chore for each item, and then `then`; others get their turn in between."""
    clock = cluster.clock
    until_ms = clock.monotonic_ms() + SLICE_MS
    for item in items:
        chore(item)
        if clock.monotonic_ms() >= until_ms:
            clock.call_later(0, lambda: in_slices(cluster, chore, items, then))
            return
    then()
