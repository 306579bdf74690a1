"""Where records come to lie decompressed: what all writers of the codecs write, and no more memory than is allowed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.arena import Arena
from minibroker.pipeline.log_source import CorruptData
from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.records.compression import Compression, compress, decompress
from tests.cases import for_each
from tests.pipeline.decode.reference import decoded
from tests.pipeline.decode.test_damage import batch_of
from tests.protocol.records.samples import damaged
from tests.protocol.records.test_compression import NOISE, OTHER_WRITERS, REAL, TEXT

LIMIT = 1 << 20


def unpacked(codec: int, data: bytes, arena: Arena | None = None) -> bytes:
    arena = arena or Arena(1000, LIMIT)
    start = arena.decompress(codec, memoryview(data))
    return arena.data[start : arena.used].tobytes()


@for_each(("codec", "write"), OTHER_WRITERS)
@for_each("content", [b"", b"short", TEXT, NOISE])
def test_data_of_other_compressors_is_decompressed(
    codec: Compression, write: Callable[[bytes], bytes], content: bytes
) -> None:
    assert unpacked(codec, write(content)) == content


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_several_members_or_frames_are_decompressed(codec: Compression) -> None:
    parts = [bytes(compress(codec, content)) for content in (TEXT, b"and", NOISE)]
    assert unpacked(codec, b"".join(parts)) == TEXT + b"and" + NOISE


@pytest.mark.parametrize("codec", REAL)
def test_an_arena_decompresses_several_batches(codec: Compression) -> None:
    arena = Arena(1000, LIMIT)
    for content in (TEXT, b"", NOISE, b"short", TEXT):
        assert unpacked(codec, bytes(compress(codec, content)), arena) == content
    assert arena.used == 2 * len(TEXT) + len(NOISE) + len(b"short")
    arena.clear()
    assert (arena.used, len(arena.data) < LIMIT) == (0, True)


@pytest.mark.parametrize("codec", REAL)
@given(seed=st.integers(0, 2**32))
def test_corrupt_data_gets_the_same_verdict_as_from_the_protocol(codec: Compression, seed: int) -> None:
    random = Random(seed)
    data = damaged(random, bytes(compress(codec, random.choice((TEXT, NOISE[:3000], b"short")))))
    arena = Arena(1000, LIMIT)
    try:
        wanted = bytes(decompress(codec, memoryview(data), LIMIT))
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            unpacked(codec, data, arena)
        assert arena.used == 0
    except KafkaError as refused:
        with pytest.raises(KafkaError) as caught:
            unpacked(codec, data, arena)
        assert caught.value.code == refused.code
    else:
        assert unpacked(codec, data, arena) == wanted


@pytest.mark.parametrize("codec", REAL)
def test_excessive_decompressed_sizes_are_rejected(codec: Compression) -> None:
    for size in (LIMIT + 1, 20 * LIMIT):
        with pytest.raises(KafkaError) as caught:
            unpacked(codec, bytes(compress(codec, bytes(size))))
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert unpacked(codec, bytes(compress(codec, bytes(LIMIT)))) == bytes(LIMIT)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (batch_of(b"\x0e\0\0\0\1\1\0\0", (1 << 31) - 1), "2147483647 records, more than"),
        (batch_of(b"\x0e\0\0\0\1\1\0\0", 1 << 23), "malformed"),
        (batch_of(b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", 1), "headers"),
        (batch_of(b"\xfe\xff\xff\xff\x0f\0\0\0\1\1\0", 1), "a length of 2147483647 bytes"),
    ],
    ids=["records", "many records", "headers", "length"],
)
def test_announced_sizes_allocate_no_memory(batch: bytes, reason: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=reason):
            decoded(batch, chunk_bytes=1 << 16)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
