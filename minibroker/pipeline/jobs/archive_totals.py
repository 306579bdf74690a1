"""The totals of an archive: records, bytes and offsets of each partition, and the files with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.pipeline.log_source import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Written(NamedTuple):
    """The records that were written of one partition. `payload_bytes` counts keys and values."""

    records: int
    payload_bytes: int
    first_offset: int
    last_offset: int

    def and_then(self, later: Written) -> Written:
        """Return the sum of this and what was written later."""
        first, last = min(self.first_offset, later.first_offset), max(self.last_offset, later.last_offset)
        return Written(self.records + later.records, self.payload_bytes + later.payload_bytes, first, last)


@dataclass
class Totals:
    """The totals by partition of a topic, and the files."""

    partitions: dict[TopicPartition, Written] = field(default_factory=dict)
    files: int = 0
    file_bytes: int = 0

    @property
    def records(self) -> int:
        """The number of records of all partitions."""
        return sum(written.records for written in self.partitions.values())

    def add(self, later: Totals) -> None:
        """Add what was written later."""
        for partition, written in later.partitions.items():
            known = self.partitions.get(partition)
            self.partitions[partition] = known.and_then(written) if known else written
        self.files += later.files
        self.file_bytes += later.file_bytes

    def as_json(self) -> dict[str, Any]:
        """Return the totals as JSON, for a file of the archive and for the report of a run."""
        rows = [
            {"topic": partition.topic, "partition": partition.partition, **written._asdict()}
            for partition, written in sorted(self.partitions.items())
        ]
        return {"partitions": rows, "files": self.files, "file_bytes": self.file_bytes}

    @classmethod
    def from_json(cls, parsed: Mapping[str, Any]) -> Totals:
        """Return the totals from such a file. Raises `KeyError` or `TypeError` if it is malformed."""
        partitions = {
            TopicPartition(row["topic"], row["partition"]): Written(*(row[name] for name in Written._fields))
            for row in parsed["partitions"]
        }
        return cls(partitions, parsed["files"], parsed["file_bytes"])


def totals_of(rows: DataFrame) -> Totals:
    """Count rows of the archive by reading them, which also shows that they can be read."""
    from pyspark.sql import functions as F

    sizes = [F.coalesce(F.octet_length(column), F.lit(0)).cast("bigint") for column in ("key", "value")]
    counts = [F.count("*"), F.sum(sizes[0] + sizes[1]), F.min("offset"), F.max("offset")]
    found = rows.groupBy("topic", "partition").agg(*counts).collect()
    return Totals({TopicPartition(*row[:2]): Written(*row[2:]) for row in found})
