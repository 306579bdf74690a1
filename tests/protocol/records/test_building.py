"""Batches that we write against those that Kafka's clients write, and read by other readers."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import HEADER_BYTES, LOG_APPEND_TIME, check_batch, read_header
from minibroker.protocol.records.building import build_batch, build_batch_in_steps, build_plain_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.protocol.records.samples import CODECS, JAVA, LARGE, SMALL, T, golden, recompress, records


class TestBytes:
    def test_batch_bytes_equal_those_of_java(self) -> None:
        assert build_batch(SMALL) == JAVA["small none"]

    def test_batch_bytes_equal_those_of_librdkafka(self) -> None:
        assert build_batch(SMALL, leader_epoch=0) == golden("librdkafka")["small none"]

    def test_transactional_batch_bytes_equal_those_of_java(self) -> None:
        sent = [Record(timestamp=T, value=b"in a transaction")] * 3
        batch = build_batch(
            sent,
            base_offset=40,
            producer_id=77,
            producer_epoch=3,
            base_sequence=2147483646,
            transactional=True,
            leader_epoch=9,
        )
        assert batch == JAVA["transactional"]

    @pytest.mark.parametrize("codec", CODECS)
    def test_batches_built_in_steps_equal_those_built_at_once(self, codec: Compression) -> None:
        sent = [Record(timestamp=T, key=b"k%d" % number, value=b"v" * 100) for number in range(300)]
        producer = {"producer_id": 77, "producer_epoch": 3, "transactional": True}
        steps = build_batch_in_steps(sent, compression=codec, **producer)
        count = 0
        with pytest.raises(StopIteration) as end:
            while True:
                next(steps)
                count += 1
        batch, whole = end.value.value, build_batch(sent, compression=codec, **producer)
        header, expected = check_batch(batch), check_batch(whole)
        assert header._replace(batch_length=0, crc=0) == expected._replace(batch_length=0, crc=0)
        assert list(iterate_records_of_batch(batch)) == list(iterate_records_of_batch(whole))
        assert codec or (batch == whole and count >= len(sent))

    @given(
        entries=st.lists(
            st.tuples(st.binary(max_size=80), st.none() | st.binary(max_size=80)), min_size=1, max_size=70
        ),
        producer=st.none() | st.tuples(st.integers(0, 1 << 40), st.integers(0, 9)),
    )
    def test_batches_built_from_keys_and_values_equal_those_built_from_records(
        self, entries: list[tuple[bytes, bytes | None]], producer: tuple[int, int] | None
    ) -> None:
        sent = [Record(timestamp=7, key=key, value=value) for key, value in entries]
        producer_id, epoch = producer or (-1, -1)
        told = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": producer is not None}
        assert build_plain_batch(entries, 7, producer=producer) == build_batch(sent, **told)  # type: ignore[arg-type]

    @pytest.mark.parametrize("count", [1, 63, 64, 65, 9000])
    def test_batches_built_from_equally_sized_entries_equal_those_built_from_records(self, count: int) -> None:
        entries: list[tuple[bytes, bytes | None]] = [(b"key", b"value")] * count
        entries += [(b"key", None), (b"key", b""), (b"key", None)]
        sent = [Record(timestamp=7, key=key, value=value) for key, value in entries]
        assert build_plain_batch(entries, 7) == build_batch(sent)

    @pytest.mark.parametrize(("client", "leader_epoch"), [(aiokafka_records, -1), (kafka_python_records, 0)])
    @given(sent=records())
    def test_batch_bytes_equal_those_of_python_clients(
        self, client: Any, leader_epoch: int, sent: list[Record]
    ) -> None:
        builder = client.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for offset, timestamp, key, value, headers in sent:
            builder.append(offset, timestamp, key, value, list(headers))
        assert build_batch(sent, leader_epoch=leader_epoch) == bytes(builder.build())

    @for_each("codec", CODECS[1:])
    @for_each(("name", "sent"), [("small", SMALL), ("large", LARGE)])
    def test_compressed_batches_differ_from_javas_only_in_the_compressed_part(
        self, name: str, sent: list[Record], codec: Compression
    ) -> None:
        theirs = read_header(JAVA[f"{name} {codec.name.lower()}"])
        ours = check_batch(build_batch(sent, compression=codec))
        assert ours == theirs._replace(batch_length=ours.batch_length, crc=ours.crc)


class TestReadBack:
    @pytest.mark.parametrize("codec", CODECS)
    @given(sent=records())
    def test_batches_are_decoded_by_aiokafka_and_by_us(self, codec: Compression, sent: list[Record]) -> None:
        batch = build_batch(sent, compression=codec)
        theirs = aiokafka_records.DefaultRecordBatch(bytearray(batch))
        assert theirs.validate_crc()
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == sent
        assert list(iterate_records_of_batch(batch)) == sent

    def test_built_records_get_consecutive_offsets_instead_of_their_own(self) -> None:
        batch = build_batch([Record(offset=99)] * 3, base_offset=7)
        assert [record.offset for record in iterate_records_of_batch(batch)] == [7, 8, 9]

    def test_a_batch_can_be_built_with_the_given_offsets(self) -> None:
        batch = build_batch(
            [Record(offset=10), Record(offset=12), Record(offset=99)], base_offset=10, keep_offsets=True
        )
        assert [record.offset for record in iterate_records_of_batch(batch)] == [10, 12, 99]
        header = check_batch(batch)
        assert (header.last_offset, header.record_count) == (99, 3)

    def test_log_append_time_is_set_in_a_built_batch(self) -> None:
        header = check_batch(build_batch(SMALL, timestamp_type=LOG_APPEND_TIME))
        assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (LOG_APPEND_TIME, T, T + 100000)

    def test_compression_levels_are_passed_to_the_codec(self) -> None:
        fast = build_batch(LARGE, compression=Compression.ZSTD, level=-131072)
        assert len(fast) > len(build_batch(LARGE, compression=Compression.ZSTD))


def test_a_batch_cannot_be_built_without_records() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


class TestRecompressing:
    @for_each("source", CODECS)
    @for_each("target", CODECS)
    def test_recompressing_keeps_records_and_header(self, source: Compression, target: Compression) -> None:
        data = JAVA[f"small {source.name.lower()}"]
        header = check_batch(data)
        batch = recompress(memoryview(data), target)
        changed = check_batch(batch)
        expected = header._replace(attributes=target, batch_length=len(batch) - 12, crc=changed.crc)
        assert changed == expected
        assert list(iterate_records_of_batch(batch)) == SMALL

    def test_recompressing_a_batch_keeps_its_other_attributes(self) -> None:
        batch = build_batch(SMALL, transactional=True, timestamp_type=LOG_APPEND_TIME, compression=Compression.GZIP)
        header = check_batch(recompress(batch, Compression.LZ4))
        assert header.attributes == 0x1B

    def test_recompressing_to_no_codec_gives_the_uncompressed_batch(self) -> None:
        batch = JAVA["small snappy"]
        assert recompress(batch, Compression.NONE)[HEADER_BYTES:] == JAVA["small none"][61:]

    def test_the_size_of_a_too_large_batch_is_in_the_error(self) -> None:
        whole = len(recompress(JAVA["small zstd"], Compression.NONE))
        assert len(recompress(JAVA["small zstd"], Compression.NONE, whole)) == whole
        with pytest.raises(KafkaError, match=f"{whole} bytes"):
            recompress(JAVA["small zstd"], Compression.NONE, whole - 1)
