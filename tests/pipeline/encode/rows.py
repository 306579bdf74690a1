"""Records as rows of Arrow, for the tests of what encodes them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from minibroker.pipeline.schemas import HEADERS
from minibroker.protocol.records.record import Record

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)


def rows_of(records: Sequence[Record]) -> pa.RecordBatch:
    """The records' columns."""
    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()),
            pa.array(headers, HEADERS),
        ],
        schema=SCHEMA,
    )
