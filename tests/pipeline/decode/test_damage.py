"""Damage: the same verdict as the strict reader's, told with its place, and nothing else that bytes can do."""

from __future__ import annotations

from random import Random
from struct import pack_into
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import RecordsDecoder
from minibroker.pipeline.log_source import CorruptData, Mode, ReadRequest
from minibroker.pipeline.schemas import CORRUPT
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, BatchHeader, read_header
from minibroker.protocol.records.building import assemble_batch, build_batch
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message import encode_message
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.restarting import elide_attributes_of_payload
from tests.pipeline.decode.reference import (
    ALL_COLUMNS,
    EVERYTHING,
    PARTITION,
    batch_rows,
    decoded,
    expected,
    without_reasons,
)
from tests.pipeline.decode.samples import logs, old_records, renumbered, with_header
from tests.protocol.records.samples import SMALL, T, damaged, payload, records, similar_records

GOOD = [bytes(build_batch(renumbered(SMALL, offset), base_offset=offset)) for offset in (0, 10, 1000)]
SIZE = len(GOOD[0])
FIRST, LAST = range(5), range(1000, 1005)
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
LIMIT = 1 << 20


def log_with(middle: bytes) -> bytes:
    return GOOD[0] + middle + GOOD[2]


def offsets_of(rows: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


def flipped(batch: bytes, position: int) -> bytes:
    changed = bytearray(batch)
    changed[position] ^= 1
    return bytes(changed)


def batch_of(content: bytes, count: int, codec: int = 0, more_attributes: int = 0) -> bytes:
    """A batch at offset 10 whose records are these bytes, with a right checksum."""
    attributes = codec | more_attributes
    header = BatchHeader(10, 0, 0, 2, 0, attributes, max(count - 1, 0), T, T, -1, -1, -1, count)
    return bytes(assemble_batch(header, compress(codec, content)))


class TestModes:
    def test_failfast_reports_file_position_and_offset(self) -> None:
        with pytest.raises(CorruptData, match=rf"^a\.log: position {SIZE}, offset 10: Record is corrupt \(stored crc"):
            decoded(log_with(flipped(GOOD[1], 80)))

    def test_permissive_gives_one_row_for_a_corrupt_batch(self) -> None:
        rows = decoded(log_with(flipped(GOOD[1], 80)), mode="PERMISSIVE")
        assert offsets_of(rows) == [*FIRST, 10, *LAST]
        (bad,) = [row for row in rows if row[CORRUPT] is not None]
        message = bad.pop(CORRUPT)
        assert message.startswith(f"a.log: position {SIZE}, offset 10: Record is corrupt")
        assert {name: value for name, value in bad.items() if value is not None} == {
            "topic": "t",
            "partition": 3,
            "offset": 10,
        }

    def test_dropmalformed_skips_a_corrupt_batch(self) -> None:
        rows = decoded(log_with(flipped(GOOD[1], 80)), mode="DROPMALFORMED")
        assert offsets_of(rows) == [*FIRST, *LAST]

    def test_damage_in_records_of_a_broker_is_reported_without_a_position(self) -> None:
        decoder = RecordsDecoder(PARTITION, ReadRequest("records", ALL_COLUMNS), EVERYTHING)
        with pytest.raises(CorruptData, match="^broker 1, offset 0: Record is corrupt"):
            list(decoder.decode_data(flipped(GOOD[0], 80), "broker 1", None))

    @pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
    def test_a_log_of_only_corrupt_batches_is_decoded_as_the_mode_says(self, mode: Mode) -> None:
        data = b"".join(
            with_header(batch_of(b"\x0e\0\0\0\1\1\0\0", 1), base_offset=offset, last_offset_delta=0)
            for offset in range(300)
        )
        assert len(decoded(data, mode=mode)) == (300 if mode == "PERMISSIVE" else 0)


class TestSameVerdictAsTheStrictReader:
    @given(seed=st.integers(0, 2**32), codec=st.sampled_from(Compression), batch=records())
    def test_decoders_agree_on_corrupt_records(self, seed: int, codec: Compression, batch: list[Record]) -> None:
        random = Random(seed)
        content = damaged(random, payload(batch))
        data = log_with(batch_of(content, len(batch) + random.choice((0, 0, 0, 0, 1, -1)), codec))
        assert_same_verdict(data)

    @given(seed=st.integers(0, 2**32))
    def test_decoders_agree_on_corrupt_long_batches(self, seed: int) -> None:
        random = Random(seed)
        batch = similar_records(random)
        assert_same_verdict(log_with(batch_of(damaged(random, payload(batch)), len(batch))))

    @given(seed=st.integers(0, 2**32), codec=st.sampled_from((Compression.NONE, Compression.NONE, Compression.LZ4)))
    def test_decoders_agree_on_many_partly_corrupt_batches(self, seed: int, codec: Compression) -> None:
        """So many that they are walked side by side, and lie next to each other."""
        random = Random(seed)
        batch = [record for record in similar_records(random) if len(record.value or b"") < 1000][:50] or SMALL
        content, count = payload(batch), len(batch)
        parts = []
        for offset in range(0, 40 * 100, 100):
            is_bad = random.random() < 0.1
            this = batch_of(
                damaged(random, content) if is_bad else content, count + random.choice((0, 1, -1)) * is_bad, codec
            )
            parts.append(with_header(this, base_offset=offset))
        assert_same_verdict(b"".join(parts))

    @given(seed=st.integers(0, 2**32), batch=records())
    def test_decoders_agree_on_corrupt_records_without_attributes(self, seed: int, batch: list[Record]) -> None:
        content = elide_attributes_of_payload(payload(batch), len(batch)) or b""
        assert_same_verdict(log_with(batch_of(damaged(Random(seed), content), len(batch), 0, ELIDED_BIT)))

    @given(
        seed=st.integers(0, 2**32),
        magic=st.sampled_from((0, 1)),
        codec=st.sampled_from(OLD_CODECS[1:]),
        batch=records(max_size=5),
    )
    def test_decoders_agree_on_corrupt_messages_in_wrappers(
        self, seed: int, magic: int, codec: Compression, batch: list[Record]
    ) -> None:
        content = bytes(build_message_set(old_records(batch), magic))
        value = compress(codec, damaged(Random(seed), content))
        data = log_with(encode_message(magic, 19, T, codec, None, bytes(value)))
        assert_same_verdict(data)

    @given(seed=st.integers(0, 2**32), magic=st.sampled_from((0, 1)), is_wrapped=st.booleans())
    def test_decoders_agree_on_inconsistent_messages_with_valid_checksums(
        self, seed: int, magic: int, is_wrapped: bool
    ) -> None:
        random = Random(seed)
        message = bytearray(encode_message(magic, 10, T, 0, b"key", b"value"))
        at = random.choice((26, 33) if magic else (18, 25))
        pack_into(">i", message, at, random.choice((-2, -1, 0, 2, 4, 6, 1 << 20, (1 << 31) - 1, -(1 << 31))))
        pack_into(">I", message, 12, crc32(message[16:]))
        if is_wrapped:
            message = bytearray(encode_message(magic, 10, T, 1, None, bytes(compress(1, bytes(message)))))
        assert_same_verdict(log_with(bytes(message)))

    @given(data=logs(max_batches=4), seed=st.integers(0, 2**32))
    def test_decoders_agree_on_flipped_bits_under_a_checksum(self, data: bytes, seed: int) -> None:
        random = Random(seed)
        batches = list(iterate_batches_in_any_format(data))
        if batches:
            position, header = random.choice(batches)
            behind_the_magic = position + random.randrange(17, header.size_bytes)
            assert_same_verdict(flipped(data, behind_the_magic))


def assert_same_verdict(data: bytes) -> None:
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        assert without_reasons(decoded(data, mode=mode)) == expected(data, mode=mode)
    try:
        wanted = expected(data)
    except KafkaError:
        with pytest.raises(CorruptData, match=r"^a\.log: position \d+, offset \d+: ."):
            decoded(data)
    else:
        assert decoded(data) == wanted


class TestWhatNoChecksumCovers:
    def test_decreasing_offsets_are_damage(self) -> None:
        with pytest.raises(
            CorruptData, match=f"position {2 * SIZE}, offset 0: the batches before it reach up to .* 14"
        ):
            decoded(GOOD[0] + GOOD[1] + GOOD[0])
        rows = decoded(GOOD[0] + GOOD[1] + GOOD[0] + GOOD[2], mode="PERMISSIVE")
        assert offsets_of(rows) == [*FIRST, *range(10, 15), 0, *LAST]

    def test_a_wrong_checksum_does_not_affect_the_next_batch(self) -> None:
        far_ahead = with_header(GOOD[1], last_offset_delta=1 << 30)
        rows = decoded(log_with(flipped(far_ahead, 100)), mode="DROPMALFORMED")
        assert offsets_of(rows) == [*FIRST, *LAST]

    def test_a_negative_last_offset_delta_is_damage(self) -> None:
        with pytest.raises(CorruptData, match="invalid offset range"):
            decoded(with_header(GOOD[1], last_offset_delta=-1))

    def test_a_negative_record_count_is_damage(self) -> None:
        with pytest.raises(CorruptData, match="Found invalid record count -1"):
            decoded(batch_of(b"", -1))


class TestNoWayToTheNextBatch:
    @pytest.mark.parametrize(
        ("rest", "reason"),
        [
            (b"\0" * 7 + b"\x09" + b"\0" * 8 + b"\x03" + b"\0" * 80, "Invalid magic found in record: 3"),
            (b"\0" * 7 + b"\x09" + b"\0\0\0\x30" + b"\0" * 4 + b"\x02" + b"\0" * 80, "a batch of format 2 of 60 bytes"),
            (b"\0" * 7 + b"\x09" + b"\xff" * 4 + b"\0" * 4 + b"\x01" + b"\0" * 80, "a batch of format 1 of 11 bytes"),
            (b"\0" * 7 + b"\x09" + b"\0" * 3, "11 bytes are left, less than a batch's header"),
            (GOOD[1][:-1], f"the batch has {SIZE} bytes, but only {SIZE - 1} are left"),
        ],
    )
    def test_damage_that_hides_the_next_batch_is_reported_once(self, rest: bytes, reason: str) -> None:
        for rows in (decoded(GOOD[0] + rest, mode="PERMISSIVE"), batch_rows(GOOD[0] + rest, mode="PERMISSIVE")):
            assert [reason in (row[CORRUPT] or "") for row in rows].count(True) == 1
            assert rows[-1][CORRUPT].startswith(("a.log", "/logs/t-3/a.log"))
            assert rows[-1].get("position", SIZE) == SIZE
            assert rows[-1].get("segment", "a.log") == "a.log"
        assert decoded(GOOD[0] + rest, mode="DROPMALFORMED") == decoded(GOOD[0])
        with pytest.raises(CorruptData, match=f"position {SIZE}, offset"):
            decoded(GOOD[0] + rest)


class TestHostileBytes:
    @given(data=st.binary(max_size=400))
    def test_arbitrary_bytes_are_decoded_or_damage(self, data: bytes) -> None:
        assert_survives(data)

    @given(content=st.binary(max_size=300), count=st.integers(-2, 300), attributes=st.integers(0, 0xFF))
    def test_arbitrary_records_under_a_valid_checksum_are_decoded_or_damage(
        self, content: bytes, count: int, attributes: int
    ) -> None:
        header = read_header(GOOD[1])._replace(record_count=count, attributes=attributes, last_offset_delta=300)
        assert_survives(log_with(bytes(assemble_batch(header, content))))

    @given(
        magic=st.sampled_from((0, 1)),
        attributes=st.integers(0, 0xF),
        content=st.binary(max_size=200),
    )
    def test_arbitrary_wrappers_under_a_valid_checksum_are_decoded_or_damage(
        self, magic: int, attributes: int, content: bytes
    ) -> None:
        assert_survives(log_with(encode_message(magic, 19, T, attributes, None, content)))

    @given(data=logs(), seed=st.integers(0, 2**32))
    def test_corrupt_logs_never_crash_the_decoder(self, data: bytes, seed: int) -> None:
        assert_survives(damaged(Random(seed), data))

    def test_a_record_cannot_extend_into_the_next_batch(self) -> None:
        value = b"\x0e\0\0\0\1\x50\0"  # of 40 bytes, which are not here
        assert offsets_of(decoded(log_with(batch_of(value, 1)), mode="DROPMALFORMED")) == [*FIRST, *LAST]

    @pytest.mark.parametrize("more", [-1, 1, 2])
    def test_a_wrong_record_count_in_one_of_many_batches_is_damage(self, more: int) -> None:
        records = [Record(0, T, b"k", b"v" * index) for index in range(30)]
        batches = [bytes(build_batch(records, base_offset=offset)) for offset in range(0, 3000, 30)]
        batches[50] = with_header(batches[50], record_count=30 + more)
        rows = decoded(b"".join(batches), mode="PERMISSIVE")
        assert offsets_of(rows) == [*range(1500), 1500, *range(1530, 3000)]
        assert rows[1500][CORRUPT] is not None

    def test_a_record_length_of_zero_is_damage(self) -> None:
        assert decoded(batch_of(b"\0" * 70, 10), mode="DROPMALFORMED") == []

    @pytest.mark.parametrize("count", [8, 1 << 20, (1 << 31) - 1])
    def test_an_excessive_record_count_is_damage(self, count: int) -> None:
        assert decoded(batch_of(b"\x0e\0\0\0\1\1\0\0", count), mode="DROPMALFORMED") == []

    def test_an_excessive_header_count_is_damage(self) -> None:
        count = b"\xfe\xff\xff\xff\x0f"
        assert decoded(batch_of(b"\x14\0\0\0\1\1" + count, 1), mode="DROPMALFORMED") == []

    @pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
    def test_an_excessive_decompressed_size_is_damage(self, codec: Compression) -> None:
        bomb = batch_of(bytes(20 * LIMIT), 1, codec)
        for chunk_bytes in (1000, 1 << 20):
            request = ReadRequest("records", ALL_COLUMNS)
            decoder = RecordsDecoder(PARTITION, request, EVERYTHING, None, chunk_bytes, max_batch_bytes=LIMIT)
            with pytest.raises(CorruptData, match=f"more than {LIMIT} bytes"):
                list(decoder.decode_data(bomb, "a.log", 0))

    def test_an_excessive_uncompressed_size_is_damage(self) -> None:
        decoder = RecordsDecoder(PARTITION, ReadRequest("records", ALL_COLUMNS), EVERYTHING, max_batch_bytes=SIZE - 1)
        with pytest.raises(CorruptData, match=f"a batch of {SIZE} bytes, more than the limit of {SIZE - 1}"):
            list(decoder.decode_data(GOOD[0], "a.log", 0))


def assert_survives(data: bytes) -> None:
    """Nothing but `CorruptData` comes of it, and in the other modes not even that."""
    for columns in (ALL_COLUMNS, ("value",), ("offset", "timestamp"), ("offset",)):
        for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
            try:
                decoded(data, mode=mode, columns=columns)
            except CorruptData:
                assert mode == "FAILFAST"
    batch_rows(data, mode="PERMISSIVE", verify_crc=True)
