"""Topics, partitions and configs in the metadata log of a directory."""

from __future__ import annotations

from pathlib import Path

from minibroker.pipeline.jobs.verify.directory_metadata import read_metadata
from tests.pipeline.jobs.verify.metadata_logs import config, metadata, topic

ALWAYS = {"__consumer_offsets", "__transaction_state"}


def test_without_metadata_only_the_coordinators_topics_are_known_to_be_compacted(tmp_path: Path) -> None:
    assert read_metadata(tmp_path).compacted == ALWAYS


def test_the_newest_policy_counts(tmp_path: Path) -> None:
    values = (
        config("a", "compact"), config("b", "delete"), config("c", "compact,delete"), config("d", "compact"),
        config("d", None), config("e", "compact", "other.policy"), config("f", "compact"), topic("f"),
    )  # fmt: skip
    assert read_metadata(metadata(tmp_path, *values)).compacted == {"a", "c"} | ALWAYS


def test_a_snapshot_of_the_metadata_counts_and_garbage_does_not(tmp_path: Path) -> None:
    metadata(tmp_path, config("a", "compact"), config("b", "compact"), name=f"{7:020d}-{1:010d}.checkpoint")
    metadata(tmp_path, config("b", "delete"), bytes((1, 4, 0, 2, 99)), b"", bytes((1, 99, 0, 5)))
    assert read_metadata(tmp_path).compacted == {"a"} | ALWAYS
