"""The columns of the two tables, `minibroker` (records) and `minibroker-batches`, as Arrow schemas.

Spark requires that a reader's batches equal them exactly: order, types, nullability. The schemas for Spark's users are
made from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

# Spark's own: Kafka's milliseconds times 1000; null for none (-1), and for what is too much for that.
TIMESTAMP: Final = pa.timestamp("us", "UTC")
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EXACT_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))  # also with invalid UTF-8
CORRUPT: Final = "_corrupt"
EXACT: Final = ("timestampMs", "baseTimestampMs", "maxTimestampMs")  # as stored, -1 for none; only if a query asks

# One row for each record, with the columns of Spark's own Kafka source.
RECORDS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),  # with `includeHeaders`
        ("timestampMs", pa.int64()),
        (CORRUPT, pa.string()),  # with `mode=PERMISSIVE`: what is wrong with the batch, whose records are left out
    ]
)

# One row for each batch, from its header alone. A message of format 0 or 1, compressed or not, counts as a batch.
BATCHES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.string()),  # the file, null from a broker
        ("position", pa.int64()),  # in the file, null from a broker
        ("sizeInBytes", pa.int32()),
        ("magic", pa.int32()),
        ("codec", pa.string()),  # none, gzip, snappy, lz4, zstd
        ("timestampType", pa.int32()),  # 0 create time, 1 log append time; -1 none (format 0)
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("recordCount", pa.int32()),  # null for a compressed message of format 0 or 1, which has no count
        ("baseTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("baseTimestampMs", pa.int64()),
        ("maxTimestampMs", pa.int64()),
        ("partitionLeaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("baseSequence", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("attributes", pa.int32()),
        ("crc", pa.int64()),  # as stored
        ("crcValid", pa.bool_()),  # null unless asked for with `verify=crc`
        (CORRUPT, pa.string()),  # with `mode=PERMISSIVE`: what is wrong where no batch can be found
    ]
)


def choose_columns(table: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns of a table, in this order. Raises `KeyError` for an unknown name."""
    return pa.schema([table.field(name) for name in columns])
