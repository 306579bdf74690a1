"""Chores for each partition, between which other work runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minibroker.broker.clock import Then, process_items_in_slices
from minibroker.broker.cluster import Cluster
from minibroker.broker.metadata.partitions import Partition


def run_chore_on_each_partition(cluster: Cluster, chore: Callable[[Partition], None], callback: Then) -> None:
    """Call `chore` for each partition whose log is here and online, and then `callback`.

    Topics that are created or deleted meanwhile may or may not be included.
    """
    process_items_in_slices(cluster.clock, chore, _iterate_partitions(cluster), callback)


def _iterate_partitions(cluster: Cluster) -> Iterator[Partition]:
    for topic in list(cluster.image.topics.values()):
        yield from (each for each in topic.partitions if each.has_local_log and each.log.is_open_and_online)
