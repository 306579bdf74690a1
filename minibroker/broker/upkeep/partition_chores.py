"""Chores for each partition, between which other work runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minibroker.broker.clock import Then, run_chore_in_slices
from minibroker.broker.cluster import Cluster
from minibroker.broker.metadata.partitions import Partition


def run_on_each_partition(cluster: Cluster, chore: Callable[[Partition], None], then: Then) -> None:
    """Call `chore` for each partition whose log is here and online, and then `then`.

    Topics that are created or deleted meanwhile may or may not be included.
    """
    run_chore_in_slices(cluster.clock, chore, _iterate_partitions(cluster), then)


def _iterate_partitions(cluster: Cluster) -> Iterator[Partition]:
    for topic in list(cluster.image.topics.values()):
        yield from (each for each in topic.partitions if each.has_local_log and each.log.is_open_and_online)
