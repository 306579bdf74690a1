"""The decoders against the broker's own codec, which makes an object of each record."""

from __future__ import annotations

import pyarrow as pa

from minibroker.pipeline.decode.decoder import BatchesDecoder, RecordsDecoder, whole_batches
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition
from minibroker.pipeline.schemas import BATCHES, RECORDS
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.protocol.records.samples import SMALL, T

PARTITION = TopicPartition("t", 3)
EVERYTHING = OffsetRange(PARTITION, 0, 1 << 62)


def records_table(data: bytes, offsets: OffsetRange = EVERYTHING) -> pa.Table:
    decoder = RecordsDecoder(PARTITION, ReadRequest("records", tuple(RECORDS.names)), offsets)
    return pa.Table.from_batches([*decoder.feed(data, "f.log", 0), *decoder.finish()], RECORDS)


def test_records_and_batches_of_a_batch() -> None:
    data = bytes(build_batch(SMALL))
    table = records_table(data)
    assert table["value"].to_pylist() == [record.value for record in SMALL]
    decoder = BatchesDecoder(PARTITION, ReadRequest("batches", tuple(BATCHES.names), verify_crc=True), EVERYTHING)
    (row,) = pa.Table.from_batches([*decoder.feed(data, "/d/f.log", 7), *decoder.finish()]).to_pylist()
    assert (row["segment"], row["position"], row["recordCount"], row["crcValid"]) == ("f.log", 7, len(SMALL), True)


def test_a_torn_batch_is_not_whole() -> None:
    data = bytes(build_batch([Record(0, T, None, b"v")]))
    assert [whole_batches(data + data[:cut]) for cut in (0, 5, 60, 61, len(data) - 1, len(data))] == [
        *[len(data)] * 5,
        2 * len(data),
    ]
