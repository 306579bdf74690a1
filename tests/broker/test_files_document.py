"""docs/files.md names every file that a broker writes, and none that nobody knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.broker.harness import Harness
from tests.broker.transactions.producing import TransactionalProducer

DOCUMENT = Path(__file__).parents[2] / "docs" / "files.md"
BY_KAFKA_ONLY = {"bootstrap.checkpoint", "<offset>-<epoch>.checkpoint"}
AFTER_A_FAILURE = {"sync-failed"}


def documented() -> dict[str, str]:
    """By file, when it is written."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    return dict(rows)


def files(directory: Path) -> set[str]:
    names = {path.name for path in directory.rglob("*") if path.is_file()}
    return {re.sub(r"^[0-9]{20}", "<offset>", name) for name in names}


@pytest.fixture
def written(harness: Harness) -> Harness:
    """A broker with some segments of records, an aborted transaction, and a topic that was deleted."""
    harness.create_topic("t", internal_segment_bytes="200")
    harness.create_topic("gone")
    for value in "abc":
        harness.produce("t", value * 50)
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["gone"])
    producer = TransactionalProducer(harness)
    producer.init()
    producer.send("lost")
    producer.finish(commit=False)
    return harness


def test_every_file_that_exists_after_a_stop_is_documented(written: Harness) -> None:
    data = written.directory / "data"
    running = files(data)
    written.stop()
    assert running | files(data) == set(documented()) - BY_KAFKA_ONLY - AFTER_A_FAILURE


def test_files_of_a_clean_stop_are_documented_as_such(written: Harness) -> None:
    written.stop(crash=True)
    there = files(written.directory / "data")
    written.start()
    written.stop()
    only_then = {name for name in files(written.directory / "data") - there if not name.startswith("<offset>")}
    assert only_then == {name for name, when in documented().items() if "orderly stop" in when and "<" not in name}


def test_files_that_only_kafka_writes_are_documented_as_such() -> None:
    assert {name for name, when in documented().items() if when.startswith("by Kafka")} == BY_KAFKA_ONLY
