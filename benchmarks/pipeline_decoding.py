"""How fast the pipeline decodes batches to Arrow, by CPU time in one process, beside a naive decoder of the same bytes.

    python benchmarks/pipeline_decoding.py

A row of the table is the best of some runs, which take turns. The records have keys and values of uneven size, and a
header in every tenth. The naive decoder is the broker's own codec, `records_in`, which makes an object of each record,
and makes Arrow of these; that both give the same rows is verified first. `stored` are megabytes of the log, `unpacked`
those of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from minibroker.cli.shared import print_table
from minibroker.pipeline.decode.decoder import BatchesDecoder, RecordsDecoder
from minibroker.pipeline.encoder import BatchSettings, encode_rows
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import BATCHES, HEADERS, RECORDS
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from pipeline_rows import START_MS, cpu_seconds

RUNS = 5
PARTITION = TopicPartition("orders", 0)
EVERYTHING = OffsetRange(PARTITION, 0, 1 << 62)
LOG_BYTES = 16 << 20
NAIVE_BYTES = 2 << 20
ALL = tuple(name for name in RECORDS.names if name not in ("timestampMs", "_corrupt"))
SCANNED = tuple(BATCHES.names)
FEWER_COLUMNS = {"value": ("value",), "offset, timestamp": ("offset", "timestamp"), "offset": ("offset",)}
IN_DETAIL = ("format 2", "format 2, zstd", "format 1")  # logs that are decoded in all ways, the others only wholly
LOGS: dict[str, BatchSettings | tuple[int, Compression]] = {
    "format 2": BatchSettings(),
    **{f"format 2, {codec.name.lower()}": BatchSettings(codec=codec) for codec in Compression if codec},
    "format 2, one batch": BatchSettings(batch_bytes=1 << 30),
    "format 2, a record a batch": BatchSettings(batch_records=1),
    "format 1": (1, Compression.NONE),
    "format 1, lz4": (1, Compression.LZ4),
    "format 0": (0, Compression.NONE),
}
BATCH_BYTES = 16384


class Row(NamedTuple):
    """One row of the table before it is measured: so many records in so many bytes are decoded by `work`."""

    size_bytes: int
    log: str
    decoder: str
    records: int
    stored: int
    work: Callable[[], object]


def rows_of(size_bytes: int) -> pa.RecordBatch:
    """Rows like JSON, of `size_bytes` of key and value each on the average, half of that to one and a half times."""
    random = np.random.default_rng(1)
    count = LOG_BYTES // size_bytes
    letters = random.integers(97, 123, 1 << 20, dtype=np.uint8).tobytes()
    starts = random.integers(0, len(letters) - 2 * size_bytes, count).tolist()
    sizes = random.integers(size_bytes // 2, size_bytes * 3 // 2, count).tolist()
    values = []
    for index, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        head = b'{"id":%d,"amount":%d,"note":"' % (index, index * 7 % 10007)
        values.append(head + letters[start : start + max(size - len(head) - 10, 0)] + b'"}')
    headers = [[{"key": "trace", "value": b"%d" % index}] if index % 10 == 0 else [] for index in range(count)]
    return pa.record_batch(
        {
            "key": pa.array([b"key-%04d" % (index % 1000) for index in range(count)], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(START_MS + np.arange(count)),
            "headers": pa.array(headers, HEADERS),
        }
    )


def decoded(log: bytes, columns: Sequence[str] = ALL) -> list[pa.RecordBatch]:
    """The rows by the pipeline's decoder."""
    decoder = RecordsDecoder(PARTITION, ReadRequest("records", tuple(columns)), EVERYTHING)
    return [*decoder.decode_data(log, "a.log", 0), *decoder.decode_remaining_batches()]


def scanned(log: bytes, verify_crc: bool) -> list[pa.RecordBatch]:
    """The rows of the batches table."""
    decoder = BatchesDecoder(PARTITION, ReadRequest("batches", SCANNED, verify_crc=verify_crc), EVERYTHING)
    return [*decoder.decode_data(log, "a.log", 0), *decoder.decode_remaining_batches()]


def naive(log: bytes) -> pa.RecordBatch:
    """The rows by way of an object a record."""
    rows = []
    for position, header in iterate_batches_in_any_format(log):
        kind = header.timestamp_type if header.magic else -1
        for record in iterate_records_in_any_format(log, position):
            time_us = None if record.timestamp < 0 else record.timestamp * 1000
            row = (record.key, record.value, *PARTITION, record.offset, time_us, kind, list(record.headers) or None)
            rows.append(row)
    columns = [
        pa.array(column, RECORDS.field(name).type) for name, column in zip(ALL, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=ALL)


def log_of(rows: pa.RecordBatch, form: BatchSettings | tuple[int, Compression], size_bytes: int) -> bytes:
    """The rows as a log: by these settings, or as messages of an old format and codec."""
    if isinstance(form, BatchSettings):
        return b"".join(batch.data for batch in encode_rows(rows, form))
    magic, codec = form
    times = rows.column("timestamp").to_pylist()
    pairs = zip(times, rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
    records = [Record(offset, *fields) for offset, fields in enumerate(pairs)]
    step = max(BATCH_BYTES // size_bytes, 1)
    sets = (records[start : start + step] for start in range(0, len(records), step))
    return b"".join(build_message_set(some, magic, compression=codec) for some in sets)


def start_of(log: bytes, size_bytes: int) -> bytes:
    """Whole batches from the start of a log: the first one, and more up to this size."""
    ends = [position + header.size_bytes for position, header in iterate_batches_in_any_format(log)]
    return log[: max(ends[0], *(end for end in ends if end <= size_bytes), 0)]


def rows_to_measure(size_bytes: int) -> list[Row]:
    """All rows of one size of records."""
    rows = rows_of(size_bytes)
    found = []
    for name, form in LOGS.items():
        log = log_of(rows, form, size_bytes)
        some = start_of(log, NAIVE_BYTES)
        expected = naive(some)
        given = pa.Table.from_batches(decoded(some)).combine_chunks()
        assert given.equals(pa.Table.from_batches([expected]).cast(given.schema)), name
        if name in IN_DETAIL:
            found.append(Row(size_bytes, name, "naive", len(expected), len(some), lambda some=some: naive(some)))
        for what, columns in {"all columns": ALL, **(FEWER_COLUMNS if name in IN_DETAIL else {})}.items():
            work = lambda log=log, columns=columns: decoded(log, columns)  # noqa: E731
            found.append(Row(size_bytes, name, what, rows.num_rows, len(log), work))
        if name in ("format 2", "format 1"):
            for what, verify_crc in (("batches", False), ("batches, checksums", True)):
                work = lambda log=log, verify_crc=verify_crc: scanned(log, verify_crc)  # noqa: E731
                found.append(Row(size_bytes, name, what, rows.num_rows, len(log), work))
    return found


def main() -> None:
    """Measure all cases and print them."""
    rows = [row for size_bytes in (100, 1000) for row in rows_to_measure(size_bytes)]
    runs = [[cpu_seconds(row.work) for row in rows] for _ in range(RUNS)]
    table = []
    for row, seconds in zip(rows, map(min, zip(*runs, strict=True)), strict=True):
        rate = row.records / seconds
        figures = f"{rate / 1e6:.2f}", f"{row.stored / seconds / 1e6:.0f}", f"{rate * row.size_bytes / 1e6:.0f}"
        table.append((f"{row.size_bytes} B", row.log, row.decoder, *figures))
    print_table(("record", "log", "decoded", "M records/s", "MB/s stored", "MB/s unpacked"), table)


if __name__ == "__main__":
    main()
