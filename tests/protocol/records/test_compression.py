"""The codecs against other implementations, hostile data, and bombs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from random import Random

import cramjam
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec
from lz4 import frame as lz4_frame

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import Compression, compress, decompress, decompress_chunks
from minibroker.protocol.records.lz4_frames import set_standard_checksum
from tests.cases import for_each

REAL = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
LIMIT = 1 << 20
TEXT = b"minibroker " * 20000  # larger than a block of any framing
NOISE = Random(1).randbytes(150000)

contents = st.binary(max_size=200) | st.sampled_from([b"", TEXT, NOISE])


def zstd_without_size(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def zstd_with_checksum(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, level=19).compress(data)


def lz4_with_all_extras(data: bytes) -> bytes:
    return lz4_frame.compress(
        data, block_linked=False, block_checksum=True, content_checksum=True, block_size=lz4_frame.BLOCKSIZE_MAX4MB
    )


OTHER_WRITERS: list[tuple[Compression, Callable[[bytes], bytes]]] = [
    (Compression.GZIP, gzip.compress),
    (Compression.GZIP, aiokafka_codec.gzip_encode),
    (Compression.GZIP, kafka_python_codec.gzip_encode),
    (Compression.SNAPPY, aiokafka_codec.snappy_encode),
    (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    (Compression.LZ4, aiokafka_codec.lz4_encode),
    (Compression.LZ4, kafka_python_codec.lz4_encode),
    (Compression.LZ4, lz4_with_all_extras),
    (Compression.ZSTD, aiokafka_codec.zstd_encode),
    (Compression.ZSTD, kafka_python_codec.zstd_encode),
    (Compression.ZSTD, zstd_without_size),
    (Compression.ZSTD, zstd_with_checksum),
]
OTHER_READERS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: gzip.decompress,
    Compression.SNAPPY: aiokafka_codec.snappy_decode,
    Compression.LZ4: aiokafka_codec.lz4_decode,
    Compression.ZSTD: aiokafka_codec.zstd_decode,
}


class TestBothWays:
    @pytest.mark.parametrize("codec", Compression)
    @given(data=contents)
    def test_compressed_data_is_decompressed(self, codec: Compression, data: bytes) -> None:
        assert decompress(codec, compress(codec, data), LIMIT) == data

    @pytest.mark.parametrize("codec", REAL)
    @given(data=contents.filter(bool))
    def test_other_libraries_decompress_our_data(self, codec: Compression, data: bytes) -> None:
        assert OTHER_READERS[codec](bytes(compress(codec, data))) == data

    @pytest.mark.parametrize(("codec", "write"), OTHER_WRITERS)
    @given(data=contents)
    def test_data_of_other_compressors_is_decompressed(
        self, codec: Compression, write: Callable[[bytes], bytes], data: bytes
    ) -> None:
        assert decompress(codec, memoryview(write(data)), LIMIT) == data

    @pytest.mark.parametrize(
        ("codec", "levels"),
        [(Compression.GZIP, (-1, 1, 9)), (Compression.LZ4, (1, 9, 12, 17)), (Compression.ZSTD, (-131072, 1, 22))],
    )
    def test_all_compression_levels_of_kafka_are_supported(self, codec: Compression, levels: tuple[int, ...]) -> None:
        for level in levels:
            assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT

    def test_compression_levels_have_an_effect(self) -> None:
        words = b" ".join(Random(2).choices([b"alpha", b"beta", b"gamma", b"delta"], k=5000))
        for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, -100, 19)):
            assert len(compress(codec, words, high)) < len(compress(codec, words, low))

    @for_each("codec", list(Compression))
    def test_data_is_decompressed_in_pieces_of_at_most_the_given_size(self, codec: Compression) -> None:
        data = Random(1).randbytes(200_000)
        pieces = list(decompress_chunks(codec, compress(codec, data), len(data), 1000))
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) <= 1000

    def test_decompressing_uncompressed_data_copies_nothing(self) -> None:
        assert decompress(Compression.NONE, TEXT, 1) is TEXT
        assert compress(Compression.NONE, TEXT) is TEXT


class TestFramings:
    def test_snappy_uses_xerial_framing(self) -> None:
        framed = compress(Compression.SNAPPY, TEXT)
        assert framed[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
        first_bytes = int.from_bytes(framed[16:20], "big")
        assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first_bytes])) == TEXT[: 32 * 1024]

    def test_concatenated_xerial_frames_are_decompressed(self) -> None:
        framed = compress(Compression.SNAPPY, TEXT)
        assert decompress(Compression.SNAPPY, framed + framed, LIMIT) == TEXT + TEXT

    def test_several_gzip_members_are_decompressed_and_trailing_bytes_ignored(self) -> None:
        members = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(NOISE)
        assert decompress(Compression.GZIP, members, LIMIT) == TEXT + NOISE
        assert decompress(Compression.GZIP, members + b"no member", LIMIT) == TEXT + NOISE

    def test_several_zstd_frames_are_decompressed_and_skippable_ones_skipped(self) -> None:
        skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
        frames = zstd_without_size(TEXT) + skipped + zstd_with_checksum(NOISE) + skipped
        assert decompress(Compression.ZSTD, frames, LIMIT) == TEXT + NOISE

    def test_an_lz4_frame_is_readable_by_kafka(self) -> None:
        """Version 1, independent blocks of 64 KB; no checksums, no content size."""
        assert compress(Compression.LZ4, TEXT)[:6] == b"\x04\x22\x4d\x18\x60\x40"

    def test_bytes_after_an_lz4_frame_are_ignored(self) -> None:
        assert decompress(Compression.LZ4, compress(Compression.LZ4, TEXT) + b"more", LIMIT) == TEXT

    def test_lz4_frames_of_linked_blocks_are_rejected(self) -> None:
        linked = lz4_frame.compress(TEXT, block_linked=True, block_size=lz4_frame.BLOCKSIZE_MAX64KB)
        with pytest.raises(CorruptBatch, match="independent blocks"):
            decompress(Compression.LZ4, linked, LIMIT)


class TestHostileData:
    @pytest.mark.parametrize(("position", "value"), [(4, 0x20), (4, 0x61), (4, 0x62), (5, 0x30), (5, 0x80)])
    def test_an_lz4_header_of_another_version_or_block_size_is_rejected(self, position: int, value: int) -> None:
        frame = bytearray(compress(Compression.LZ4, TEXT))
        frame[position] = value
        with pytest.raises(CorruptBatch, match="values that are not known"):
            decompress(Compression.LZ4, set_standard_checksum(frame), LIMIT)

    @pytest.mark.parametrize("codec", [5, 6, 7, 255, -1])
    def test_unknown_codecs_are_rejected(self, codec: int) -> None:
        for call in (lambda: decompress(codec, b"x", LIMIT), lambda: compress(codec, b"x")):
            with pytest.raises(KafkaError, match=f"Unknown compression type id: {codec}") as refusal:
                call()
            assert refusal.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    @pytest.mark.parametrize("codec", REAL)
    @given(data=st.binary(max_size=100))
    def test_arbitrary_compressed_bytes_are_rejected(self, codec: Compression, data: bytes) -> None:
        for start in (b"", compress(codec, TEXT)[:7], compress(codec, TEXT)[:20]):
            try:
                decompress(codec, start + data, LIMIT)
            except KafkaError as refusal:
                assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)

    @pytest.mark.parametrize(("codec", "write"), OTHER_WRITERS)
    @given(flips=st.lists(st.integers(0, 2**20), min_size=1, max_size=4))
    def test_compressed_data_with_flipped_bits_is_rejected_or_bounded(
        self, codec: Compression, write: Callable[[bytes], bytes], flips: list[int]
    ) -> None:
        data = bytearray(write(TEXT))
        for flip in flips:
            data[flip // 8 % len(data)] ^= 1 << flip % 8
        try:
            decompress(codec, data, LIMIT)
        except KafkaError as refusal:
            assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)

    @for_each(("codec", "write"), OTHER_WRITERS)
    def test_truncated_compressed_data_is_detected(self, codec: Compression, write: Callable[[bytes], bytes]) -> None:
        """Between two blocks of xerial's framing nothing is missing: then there is less, and the records end early."""
        content = TEXT[:100_000] + NOISE[:100]
        data = write(content)
        for end in {*range(40), *range(len(data) - 200, len(data)), *range(0, len(data), 97)}:
            try:
                cut = decompress(codec, data[: max(0, end)], LIMIT)
            except CorruptBatch:
                continue
            assert codec == Compression.SNAPPY
            assert content.startswith(cut)
            assert len(cut) < len(content)

    def test_xerial_blocks_larger_than_the_data_are_rejected(self) -> None:
        for size in (b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\x02"):
            with pytest.raises(CorruptBatch):
                decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"") + size + b"x", LIMIT)


class TestLimit:
    @for_each(("codec", "write"), OTHER_WRITERS)
    @for_each("content", [b"x", TEXT, NOISE])
    def test_decompression_may_return_exactly_the_limit_and_no_byte_more(
        self, codec: Compression, write: Callable[[bytes], bytes], content: bytes
    ) -> None:
        assert decompress(codec, write(content), len(content)) == content
        with pytest.raises(KafkaError, match=f"more than {len(content) - 1} bytes") as refusal:
            decompress(codec, write(content), len(content) - 1)
        assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE

    def test_decompression_bombs_allocate_no_memory(self) -> None:
        """In a process of its own that may take 64 MiB more than it has, each bomb would take 256 MiB or more."""
        done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        expected = dict.fromkeys(outcome, "MESSAGE_TOO_LARGE") | {"window zstd": "CORRUPT_MESSAGE"}
        assert outcome == expected
        assert len(outcome) == 9


BOMBS = r"""
import json, resource, zlib
import cramjam, zstandard
import lz4.frame
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.compression import Compression, compress, decompress

SIZE, STEP = 1 << 28, bytes(1 << 20)

def stream(start, compress, flush):
    return start + b"".join(compress(STEP) for _ in range(SIZE // len(STEP))) + flush()

gzip, zstd = zlib.compressobj(9, wbits=31), zstandard.ZstdCompressor().compressobj()
lz4 = lz4.frame.LZ4FrameCompressor(block_linked=False)
member = zlib.compress(STEP, 9, 31)
xerial = compress(Compression.SNAPPY, bytes(1 << 20))
bombs = {
    "one gzip": (1, stream(b"", gzip.compress, gzip.flush)),
    "many gzip": (1, member * 256),
    "one zstd": (4, stream(b"", zstd.compress, zstd.flush)),
    "many zstd": (4, zstandard.ZstdCompressor().compress(STEP) * 256),
    "window zstd": (4, b"\x28\xb5\x2f\xfd\x00\xff" + bytes(20)),
    "lz4": (3, stream(lz4.begin(), lz4.compress, lz4.flush)),
    "xerial snappy": (2, xerial[:16] + xerial[16:] * 256),
    "raw snappy": (2, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    "block snappy": (2, xerial[:16] + b"\0\0\0\x06\xff\xff\xff\xff\x0f\0"),
}
with open("/proc/self/statm") as statm:
    held = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20),) * 2)
outcome = {}
for name, (codec, bomb) in bombs.items():
    try:
        outcome[name] = len(decompress(codec, bomb, 16 << 20))
    except KafkaError as refusal:
        outcome[name] = refusal.code.name
print(json.dumps(outcome))
"""


def test_without_its_library_zstd_is_a_codec_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    data = compress(Compression.ZSTD, b"tea")
    for name in ("zstandard", "minibroker.protocol.records.standard_zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    for use in (
        lambda: compress(Compression.ZSTD, b"tea"),
        lambda: decompress(Compression.ZSTD, data, 100),
        lambda: list(compress_chunks(Compression.ZSTD, [b"tea"], None)),
    ):
        with pytest.raises(KafkaError, match="zstd needs the library zstandard") as raised:
            use()
        assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_compression_libraries_are_imported_on_first_use() -> None:
    program = (
        "import sys; import minibroker.protocol.records.validation, minibroker.protocol.records.building;"
        "print([name for name in ('lz4', 'zstandard', 'cramjam') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
