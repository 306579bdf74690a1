"""Partitions are gone through a slice at a time, and those whose logs are of no use are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.clock import SLICE_MS
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.upkeep.partition_chores import run_chore_on_each_partition
from tests.broker.harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path) as harness:
        yield harness


def test_chores_of_many_partitions_run_in_time_slices(harness: Harness) -> None:
    harness.create_topic("t", partitions=5)
    done: list[int] = []
    ended: list[bool] = []

    def chore(partition: Partition) -> None:
        done.append(partition.index)
        harness.clock.advance(SLICE_MS / 2)

    run_chore_on_each_partition(harness.cluster, chore, lambda: ended.append(True))
    assert done == [0, 1]
    assert not ended
    harness.clock.advance(10)
    assert done == [0, 1, 2, 3, 4]
    assert ended == [True]


def test_chores_skip_partitions_whose_log_is_closed(harness: Harness) -> None:
    harness.create_topic("t", partitions=3)
    harness.partition("t", 1).log.close_without_flush()
    done: list[int] = []
    run_chore_on_each_partition(harness.cluster, lambda partition: done.append(partition.index), lambda: None)
    assert done == [0, 2]
