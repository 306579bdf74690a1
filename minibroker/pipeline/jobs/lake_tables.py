"""Tables of Iceberg and Delta that hold archived records, written by the formats' own Spark libraries.

Each append is one commit of the format, and each commit also notes how far the archive is. So there is no moment at
which records are in the table and the note is not, or the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs.archive import DIRECTORIES
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from minibroker.pipeline.jobs.lake_session import LakeFormat

NOTE: Final = "minibroker.archive"
SNAPSHOT_PROPERTY: Final = f"snapshot-property.{NOTE}"
RECENT_COMMITS: Final = 10
ICEBERG_HINT: Final = "metadata/version-hint.text"


@dataclass(frozen=True)
class ArchiveNote:
    """What a commit notes: its number, the next offset of each partition, and identity and configs of the topics."""

    number: int = -1
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the note as a commit has it."""
        return json.dumps({NOTE: asdict(self)}, sort_keys=True)


def note_in(text: str | None) -> ArchiveNote | None:
    """Return the note in the text of a commit, or None if it is none of ours."""
    if text is None or NOTE not in text:
        return None
    return ArchiveNote(**json.loads(text)[NOTE])


class IcebergTable:
    """An Iceberg table without a catalog, at a path or URL. Notes are properties of snapshots."""

    # The files that a run leaves if it is killed as it creates the table.
    unfinished = re.compile(r"metadata/\.?[0-9a-f-]{36}\.metadata\.json(\.crc)?")

    def __init__(self, spark: SparkSession, target: str) -> None:
        self.target = target
        self._spark = spark
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._tables = self._jvm.org.apache.iceberg.hadoop.HadoopTables(context._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        """Return whether there is such a table."""
        return bool(self._tables.exists(self.target))

    def mend(self) -> None:
        """Let the hint name the newest version: a commit writes it last, and other readers go by it."""
        newest = self._tables.load(self.target).operations().current().metadataFileLocation()
        version = newest.rpartition("/")[2].split(".")[0].removeprefix("v")
        files = HadoopFiles(self._spark, self.target)
        if not files.exists(ICEBERG_HINT) or files.read(ICEBERG_HINT).strip() != version:
            files.delete(ICEBERG_HINT)
            files.write(ICEBERG_HINT, version)

    def create(self, rows: DataFrame) -> None:
        """Create an empty table with the columns of these rows, partitioned by topic and date."""
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.spark.SparkSchemaUtil.convert(rows._jdf.schema().asNullable())
        spec = iceberg.PartitionSpec.builderFor(schema)
        for column in DIRECTORIES:
            spec = spec.identity(column)
        properties = {"write.spark.accept-any-schema": "true"}  # what `mergeSchema` needs
        self._tables.create(schema, spec.build(), properties, self.target)

    def append(self, rows: DataFrame, note: ArchiveNote, compression: str) -> None:
        """Append rows in one commit, with a note. Each task's rows are sorted by topic and date.

        They may have more columns than the table: it gets them, too.
        """
        options = {
            SNAPSHOT_PROPERTY: note.text(),
            "mergeSchema": "true",
            "compression-codec": compression,
            # By default all rows of a topic and date go to one task; ours are in order already.
            "use-table-distribution-and-ordering": "false",
        }
        rows.write.format("iceberg").mode("append").options(**options).save(self.target)

    def notes(self) -> Iterator[ArchiveNote]:
        """Yield the notes of the commits, the newest first."""
        table = self._tables.load(self.target)
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            note = note_in(snapshot.summary().get(NOTE))
            if note is not None:
                yield note
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)

    def read(self) -> DataFrame:
        """Return the rows of the table."""
        return self._spark.read.format("iceberg").load(self.target)

    def compact(self, note: ArchiveNote) -> None:
        """Merge small files: what Iceberg's procedure rewrite_data_files does, which needs a catalog.

        An empty commit then repeats the note, which would go with the merged files' snapshots when they expire.
        """
        actions = self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)
        actions.rewriteDataFiles(self._tables.load(self.target)).execute()
        self.append(self.read().limit(0), note, "zstd")


class DeltaTable:
    """A Delta table at a path. Notes are the commits' own metadata."""

    unfinished = re.compile(r"_delta_log/\..*")

    def __init__(self, spark: SparkSession, target: str) -> None:
        self.target = target
        self._spark = spark
        self._name = "delta.`" + target.replace("`", "``") + "`"

    def exists(self) -> bool:
        """Return whether there is a commit: the directory of the log alone is no table yet."""
        return any(name[:20].isdecimal() for name in HadoopFiles(self._spark, self.target).names("_delta_log"))

    def mend(self) -> None:
        """Do nothing: a commit is one file."""

    def create(self, rows: DataFrame) -> None:
        """Create an empty table."""
        empty = self._spark.createDataFrame([], rows.schema)
        empty.write.format("delta").partitionBy(*DIRECTORIES).save(self.target)

    def append(self, rows: DataFrame, note: ArchiveNote, compression: str) -> None:
        """Append rows in one commit, with a note."""
        options = {"userMetadata": note.text(), "mergeSchema": "true", "compression": compression}
        rows.write.format("delta").mode("append").options(**options).save(self.target)

    def notes(self) -> Iterator[ArchiveNote]:
        """Yield the notes of the commits, the newest first. Delta keeps a commit's metadata for 30 days by default."""
        recent = self._notes(f" LIMIT {RECENT_COMMITS}")
        yield from recent
        yield from self._notes("")[len(recent) :]

    def _notes(self, limit: str) -> list[ArchiveNote]:
        history = self._spark.sql(f"DESCRIBE HISTORY {self._name}{limit}").select("version", "userMetadata").collect()
        found = [note_in(row.userMetadata) for row in sorted(history, key=lambda row: row.version, reverse=True)]
        return [note for note in found if note is not None]

    def read(self) -> DataFrame:
        """Return the rows of the table."""
        return self._spark.read.format("delta").load(self.target)

    def compact(self, note: ArchiveNote) -> None:
        """Merge small files."""
        self._spark.sql(f"OPTIMIZE {self._name}")


LakeTable = IcebergTable | DeltaTable


def lake_table(spark: SparkSession, table_format: LakeFormat, target: str) -> LakeTable:
    """Return the table of a format at an absolute path or a URL. It need not exist."""
    return IcebergTable(spark, target) if table_format == "iceberg" else DeltaTable(spark, target)
