"""What an archive holds: counted batch by batch, and kept as JSON."""

from __future__ import annotations

import json

from minibroker.pipeline.jobs.archive_totals import Totals, Written
from minibroker.pipeline.log_source import TopicPartition

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)


def test_batches_are_totalled_by_partition() -> None:
    totals = Totals({FIRST: Written(10, 100, 0, 9)}, files=1, file_bytes=70)
    totals.add(Totals({FIRST: Written(5, 50, 10, 19), SECOND: Written(1, 7, 3, 3)}, files=2, file_bytes=30))
    assert totals.partitions == {FIRST: Written(15, 150, 0, 19), SECOND: Written(1, 7, 3, 3)}
    assert (totals.records, totals.files, totals.file_bytes) == (16, 3, 100)


def test_stored_totals_are_read_unchanged() -> None:
    totals = Totals({SECOND: Written(1, 7, 3, 3), FIRST: Written(10, 100, 0, 9)}, files=1, file_bytes=70)
    assert Totals.from_json(json.loads(json.dumps(totals.as_json()))) == totals
