"""The columns of the two tables, `minibroker` (records) and `minibroker-batches`, as Arrow schemas.

Spark wants what a reader yields to equal them exactly: order, types, nullability. What a Spark user reads of them is
made from these; nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", "UTC")  # Spark's own; Kafka's milliseconds times 1000, none (-1) is null
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CORRUPT: Final = "_corrupt"
MEASURED: Final = ("uncompressedSizeInBytes", "keyBytes", "valueBytes", "nullValues")

# One row a record, with the columns of Spark's own Kafka source.
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
        (CORRUPT, pa.string()),  # with `mode=PERMISSIVE`: what is wrong with the batch, whose records are not given
    ]
)

# One row a batch, from its header alone. A message of format 0 or 1, compressed or not, is a batch.
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
        (
            "recordCount",
            pa.int32(),
        ),  # null where a compressed message of format 0 or 1 does not say, but for `measure`
        ("baseTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("partitionLeaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("baseSequence", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("attributes", pa.int32()),
        ("crc", pa.int64()),  # as stored
        ("crcValid", pa.bool_()),  # null unless asked for with `verify=crc`
        # With `measure`: batches are decompressed for it, all or a sample, and these are null for the others.
        ("uncompressedSizeInBytes", pa.int64()),  # of a compressed message, the messages in it
        ("keyBytes", pa.int64()),
        ("valueBytes", pa.int64()),
        ("nullValues", pa.int32()),  # records without a value: tombstones, where the topic is compacted
        (CORRUPT, pa.string()),  # with `mode=PERMISSIVE`: what is wrong where no batch can be found
    ]
)


def chosen(table: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The named columns of a table, in the order asked for. Raises `KeyError` for a name that it does not have."""
    return pa.schema([table.field(name) for name in columns])
