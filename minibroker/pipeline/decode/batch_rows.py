"""The rows of the batches table: headers as Arrow."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from minibroker.pipeline.array_types import Bools
from minibroker.pipeline.decode.arrow import Rows, record_batch, times
from minibroker.pipeline.decode.batch_headers import Headers, Place
from minibroker.pipeline.decode.batch_sizes import Sizes
from minibroker.protocol.records.batch import TIMESTAMP_TYPE_BIT
from minibroker.protocol.records.compression import Compression

_CODECS: Final = (*(codec.name.lower() for codec in Compression), "5", "6", "7")  # 5 to 7 are unknown


@cache
def _codecs() -> pa.Array:
    """Return the names of the codecs.

    They are not made at import: the first `pa.array` imports pandas, which planning does not need.
    """
    return pa.array(_CODECS)


def batch_rows(
    rows: Rows, headers: Headers, is_valid: Bools | None, place: Place, sizes: Sizes | None = None
) -> pa.RecordBatch:
    """Return a row for each header. `is_valid` is whether checksums match. It and `sizes` are None if unknown."""
    count = len(headers.size)
    if sizes is not None:
        headers = headers._replace(record_count=np.where(sizes.measured, sizes.records, headers.record_count))
    columns = []
    for field in rows.schema:
        if field.name in rows.names:
            column = rows.names[field.name]
        elif field.name in _SIZES:
            column = None if sizes is None else pa.array(getattr(sizes, _SIZES[field.name]), mask=~sizes.measured)
        else:
            column = _column(field.name, headers, is_valid, place)
        is_array = isinstance(column, np.ndarray | pa.Array)
        columns.append(_cast_column(column, field.type) if is_array else rows.constant(column, field.type, count))
    return record_batch(columns, rows.schema, count)


def _cast_column(column: Any, kind: pa.DataType) -> pa.Array:
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array if array.type == kind else array.cast(kind)


def _column(name: str, headers: Headers, is_valid: Bools | None, place: Place) -> Any:
    """Return the column as an array, or the one value of all its rows."""
    match name:
        case "segment":
            return place.segment
        case "position":
            return None if place.position is None else headers.position + place.position
        case "codec":
            return _codecs().take(pa.array(headers.codec))
        case "timestampType":
            return np.where(headers.magic == 0, -1, (headers.attributes & TIMESTAMP_TYPE_BIT) // TIMESTAMP_TYPE_BIT)
        case "recordCount":
            return pa.array(headers.record_count, mask=(headers.record_count < 0) & (headers.magic < 2))
        case "baseTimestamp":
            return times(headers.base_timestamp)
        case "maxTimestamp":
            return times(headers.max_timestamp)
        case "isTransactional":
            return headers.is_transactional
        case "isControl":
            return headers.is_control
        case "crcValid":
            return is_valid
    field = _FIELDS.get(name)
    return None if field is None else getattr(headers, field)


_SIZES: Final = {
    "uncompressedSizeInBytes": "uncompressed",
    "keyBytes": "keys",
    "valueBytes": "values",
    "nullValues": "null_values",
}
_FIELDS: Final = {
    "sizeInBytes": "size",
    "magic": "magic",
    "baseTimestampMs": "base_timestamp",
    "maxTimestampMs": "max_timestamp",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "partitionLeaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "attributes": "attributes",
    "crc": "crc",
}
