"""The encoder: from rows of Arrow to batches as they are in a log or a Produce request.

It knows nothing of logs, brokers or Spark. Records never become objects: it works on whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from minibroker.pipeline.encode.batch_settings import (
    BatchSettings,
    EncodedBatch,
    EncodeError,
    Origin,
    Producer,
)
from minibroker.pipeline.encode.format_2 import encode_batches
from minibroker.pipeline.encode.input_columns import make_columns
from minibroker.pipeline.encode.message_encoding import encode_messages
from minibroker.protocol.records.batch import MAGIC

__all__ = ["BatchSettings", "EncodeError", "EncodedBatch", "Origin", "Producer", "encode_rows", "encode_origins"]

_NOBODY = Producer()


def encode_rows(
    rows: pa.RecordBatch, settings: BatchSettings, producer: Producer = _NOBODY, base_offset: int | None = 0
) -> Iterator[EncodedBatch]:
    """Yield the batches of the rows, in order; none if there are no rows.

    It uses the column `value`, and if they exist `key`, `timestamp` (null: -1), `headers` and `offset`. Records get
    offsets from `base_offset` on. If that is None they keep those of the column `offset`, which must rise and may have
    gaps. Raises `EncodeError`, in some cases only while batches are taken.
    """
    return encode_origins(rows, settings, [Origin(0, producer, settings.leader_epoch)], base_offset)


def encode_origins(
    rows: pa.RecordBatch, settings: BatchSettings, origins: Sequence[Origin], base_offset: int | None = None
) -> Iterator[EncodedBatch]:
    """Encode rows of several producers as `encode_rows` does, but much faster than with one call for each.

    The first origin starts at row 0, and each one after the one before it. Raises `EncodeError`.
    """
    if settings.magic < MAGIC and any(origin.producer != _NOBODY for origin in origins):
        raise EncodeError(f"message format {settings.magic} has no producer ids and no transactions")
    if not rows.num_rows:
        return iter(())
    columns = make_columns(rows, base_offset)
    if settings.magic < MAGIC:
        return encode_messages(columns, settings, origins)
    return encode_batches(columns, settings, origins)
