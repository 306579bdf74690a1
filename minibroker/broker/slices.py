"""Going through all partitions without holding up anybody: a slice of them, then whoever waits, then the next slice.

What is done with each is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minibroker.broker.cluster import Cluster
from minibroker.broker.topics import Partition

SLICE_MS = 2

Then = Callable[[], None]


def each_partition(cluster: Cluster, chore: Callable[[Partition], None], then: Then) -> None:
    """Do the chore for each partition whose log is here and in use, and then `then`.

    A topic that is made or deleted meanwhile is as good as one that was before.
    """
    _in_slices(cluster, chore, _partitions(cluster), then)


def _partitions(cluster: Cluster) -> Iterator[Partition]:
    for topic in list(cluster.image.topics.values()):
        yield from (partition for partition in topic.partitions if partition.is_here)


def _in_slices(
    cluster: Cluster, chore: Callable[[Partition], None], partitions: Iterator[Partition], then: Then
) -> None:
    clock = cluster.clock
    until_ms = clock.monotonic_ms() + SLICE_MS
    for partition in partitions:
        if partition.log.in_use:
            chore(partition)
        if clock.monotonic_ms() >= until_ms:
            clock.call_later(0, lambda: _in_slices(cluster, chore, partitions, then))
            return
    then()
