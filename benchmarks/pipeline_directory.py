"""How fast the pipeline reads a log directory to Arrow, by CPU time in one process, planning included.

    python benchmarks/pipeline_directory.py

Each log is written once, of JSON-like records in batches of 16 KB, in segments of 64 MB as our storage engine leaves
them. A figure is the best of some runs over the whole log, split by split; MB/s are of the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from minibroker.cli.shared import print_table
from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.encoder import BatchSettings, encode_rows
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.compression import Compression
from minibroker.storage.environment import Environment
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import Checkpoints, open_log
from pipeline_rows import START_MS, cpu_seconds, json_rows

RUNS = 3
PARTITION = TopicPartition("orders", 0)
ROWS = 20_000  # that are made; they are written again and again
LOG_BYTES = 160 << 20  # uncompressed
SEGMENT_BYTES = 64 << 20
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
READS = {
    "all columns": ReadRequest("records", ALL),
    "offset and timestamp": ReadRequest("records", ("offset", "timestamp")),
    "batches": ReadRequest("batches", ("baseOffset", "recordCount", "codec", "sizeInBytes", "producerId")),
    "batches, checksums verified": ReadRequest("batches", ("baseOffset", "crcValid"), verify_crc=True),
}


def write(directory: Path, size_bytes: int, codec: Compression) -> int:
    """A log of about `LOG_BYTES` before compression, its files finished; how many records it has."""
    environment = Environment(Disk(), lambda: START_MS, lambda delay_ms, callback: None)
    path = directory / f"{PARTITION.topic}-{PARTITION.partition}"
    path.mkdir(parents=True)
    settings = LogSettings(segment_bytes=SEGMENT_BYTES)
    log = open_log(environment, str(path), PARTITION, settings, Checkpoints(True, 0, 0))
    batches = list(encode_rows(json_rows(size_bytes, ROWS), BatchSettings(codec=codec)))
    while log.log_end_offset < LOG_BYTES // size_bytes:
        for batch in batches:
            data = bytearray(batch.data)
            log.append(data, (read_header(data),), 0)
    log.close()
    return log.log_end_offset


def read(directory: Path, request: ReadRequest) -> None:
    """All of the log, from a source that has seen nothing before."""
    source = DirectorySource(str(directory))
    bounds = source.find_bounds([PARTITION])[PARTITION]
    for split in source.make_splits([OffsetRange(PARTITION, *bounds)]):
        for _ in source.read_split(split, request):
            pass


def plan(directory: Path) -> None:
    """Where it begins and ends under read_committed, and its splits: 100 of them at least."""
    source = DirectorySource(str(directory), isolation_level="read_committed")
    source.make_splits([OffsetRange(PARTITION, *source.find_bounds([PARTITION])[PARTITION])], 100)


def main() -> None:
    """Measure all cases and print them."""
    table = []
    for size_bytes in (100, 1000):
        for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD):
            with tempfile.TemporaryDirectory() as name:
                directory = Path(name)
                count = write(directory, size_bytes, codec)
                stored = sum(path.stat().st_size for path in directory.glob("*/*.log"))
                works: dict[str, Callable[[], object]] = {
                    what: lambda directory=directory, request=request: read(directory, request)  # type: ignore[misc]
                    for what, request in READS.items()
                }
                works["planning, read_committed"] = lambda directory=directory: plan(directory)  # type: ignore[misc]
                for what, work in works.items():
                    seconds = cpu_seconds(work, RUNS)
                    rate, size = count / seconds / 1e6, stored / seconds / 1e6
                    table.append((f"{size_bytes} B", codec.name.lower(), what, f"{rate:.2f}", f"{size:.0f}"))
    print_table(("record", "codec", "what is read", "M records/s", "MB/s"), table)


if __name__ == "__main__":
    main()
