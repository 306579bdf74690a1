"""How fast the pipeline encodes rows of Arrow, by CPU time in one process, beside a naive encoder of the same bytes.

    python benchmarks/pipeline_encoding.py

A row of the table is the best of some runs. `MB/s` are megabytes of keys and values. The naive encoder is the broker's
own codec, `build_batch`, which makes an object of each record; that both write the same bytes is verified first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import pyarrow as pa

from minibroker.cli.shared import print_table
from minibroker.pipeline.encoder import (
    BatchSettings,
    EncodedBatch,
    Producer,
    RowsOrigin,
    encode_rows,
    encode_rows_of_origins,
)
from minibroker.pipeline.schemas import HEADERS
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Record
from pipeline_rows import cpu_seconds, json_rows

RUNS = 5
NAIVE_RECORDS = 20_000
SIZES = ((100, 200_000), (1000, 50_000))
CASES = {
    "format 2": BatchSettings(),
    "format 2, batches of 64 KB": BatchSettings(batch_bytes=65536),
    **{f"format 2, {codec.name.lower()}": BatchSettings(codec=codec) for codec in Compression if codec},
}


def rows_with_headers(size_bytes: int, count: int, header_every: int) -> pa.RecordBatch:
    """Rows like JSON, some of them with a header."""
    headers = [
        [{"key": "trace", "value": b"%d" % index}] if index % header_every == 0 else [] for index in range(count)
    ]
    return json_rows(size_bytes, count).drop_columns("headers").append_column("headers", pa.array(headers, HEADERS))


def naive(rows: pa.RecordBatch, counts: Sequence[int]) -> list[bytes]:
    """Batches of so many rows each, an object a record."""
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    times = rows.column("timestamp").to_pylist()
    out, start = [], 0
    for count in counts:
        some = range(start, start + count)
        records = [Record(index, times[index], keys[index], values[index]) for index in some]
        out.append(bytes(build_batch(records, base_offset=start)))
        start += count
    return out


def interleaved(rows: pa.RecordBatch) -> list[EncodedBatch]:
    """Encode the rows as a log that three idempotent producers wrote to in turn, a hundred records at a time."""
    rows = rows.append_column("offset", pa.array(range(rows.num_rows), pa.int64()))
    origins = [
        RowsOrigin(start, Producer(number % 3, 0, start), 0)
        for number, start in enumerate(range(0, rows.num_rows, 100))
    ]
    return list(encode_rows_of_origins(rows, BatchSettings(), origins))


def main() -> None:
    """Measure all cases and print them."""
    table = []
    for size_bytes, count in SIZES:
        rows = json_rows(size_bytes, count)
        some = rows.slice(0, min(count, NAIVE_RECORDS))
        batches = list(encode_rows(some, BatchSettings()))
        counts = [batch.record_count for batch in batches]
        assert [batch.data for batch in batches] == naive(some, counts)
        works: dict[str, tuple[int, Callable[[], object]]] = {
            "naive, format 2": (some.num_rows, lambda some=some, counts=counts: naive(some, counts))
        }
        for name, settings in CASES.items():
            works[name] = count, lambda rows=rows, settings=settings: list(encode_rows(rows, settings))
        with_headers = rows_with_headers(size_bytes, count, header_every=10)
        works["format 2, a header in every tenth"] = (
            count,
            lambda rows=with_headers: list(encode_rows(rows, BatchSettings())),
        )
        works["format 2, three producers in turn"] = count, lambda rows=rows: interleaved(rows)
        for name, (done, work) in works.items():
            seconds = cpu_seconds(work, RUNS)
            rate, size = done / seconds, done * size_bytes / seconds / 1e6
            table.append((f"{size_bytes} B", name, f"{rate / 1e6:.2f}", f"{size:.0f}"))
    print_table(("record", "encoder", "M records/s", "MB/s"), chain(table))


if __name__ == "__main__":
    main()
