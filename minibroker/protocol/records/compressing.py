"""Compresses piece by piece, so that other work can run in between. The bytes may differ from those of `compress`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from minibroker.protocol.records.compression import (
    GZIP_WINDOW,
    LZ4_BLOCK_BYTES,
    LZ4_END,
    LZ4_HEADER,
    STEP_BYTES,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    ZSTD_DEFAULT_LEVEL,
    Compression,
    check_codec,
    compress,
    compress_lz4_block,
    compress_xerial_block,
    cut_into_pieces,
    load_zstandard,
)
from minibroker.protocol.records.varints import Bytes

# zstd compresses a block of up to 128 KiB at a time. At slow levels, a flush ends blocks earlier, so that none takes
# much more than 10 ms; each flush costs some bytes. (From this level on, bytes.)
_ZSTD_PIECES = ((16, 1 << 13), (13, 1 << 14), (10, 1 << 15))
_ZSTD_SOURCE_BYTES = 1 << 18  # for larger sources, slow levels use tables of up to 600 MB, which take long to clear
_SLOW_PIECE_BYTES = 1 << 12  # for gzip, which takes up to a microsecond for a byte at its slowest level


def compress_chunks(codec: int, chunks: Iterable[Bytes], level: int | None) -> Iterator[Bytes]:
    """Yield `chunks` compressed as `compress` does; codec 0 returns them unchanged.

    Each piece takes a few milliseconds, at zstd's slowest levels 10, and may be empty. Raises `KafkaError`
    UNSUPPORTED_COMPRESSION_TYPE for codecs 5-7, and what `chunks` raises.
    """
    chunks = iter(chunks)
    match check_codec(codec) if codec else codec:
        case Compression.GZIP:
            return _compress_gzip(chunks, level)
        case Compression.SNAPPY:
            return _compress_snappy(chunks)
        case Compression.LZ4:
            return _compress_lz4(chunks, level)
        case Compression.ZSTD:
            return _compress_zstd(chunks, level)
    return chunks


def _compress_gzip(chunks: Iterable[Bytes], level: int | None) -> Iterator[Bytes]:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WINDOW)
    for piece in cut_into_pieces(chunks, _SLOW_PIECE_BYTES):
        yield stream.compress(piece)
    yield stream.flush()


def _compress_snappy(chunks: Iterable[Bytes]) -> Iterator[Bytes]:
    yield XERIAL_HEADER
    for block in _cut_into_blocks(chunks, XERIAL_BLOCK_BYTES):
        yield compress_xerial_block(block) if block else b""


def _compress_lz4(chunks: Iterable[Bytes], level: int | None) -> Iterator[Bytes]:
    yield LZ4_HEADER
    for block in _cut_into_blocks(chunks, LZ4_BLOCK_BYTES):
        yield compress_lz4_block(block, level) if block else b""
    yield LZ4_END


def _cut_into_blocks(chunks: Iterable[Bytes], block_bytes: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of this size, the last one smaller. Empty ones are pauses."""
    waiting = bytearray()
    for piece in cut_into_pieces(chunks, block_bytes):
        waiting += piece
        if len(waiting) >= block_bytes:
            yield bytes(waiting[:block_bytes])
            del waiting[:block_bytes]
        else:
            yield b""
    if waiting:
        yield bytes(waiting)


def _compress_zstd(chunks: Iterator[Bytes], level: int | None) -> Iterator[Bytes]:
    zstandard = load_zstandard()
    wanted = ZSTD_DEFAULT_LEVEL if level is None else level
    piece_bytes = next((piece for slow, piece in _ZSTD_PIECES if wanted >= slow), 0)
    first, size_bytes = [], 0
    for chunk in chunks:
        if chunk:
            first.append(chunk)
            size_bytes += len(chunk)
        if size_bytes >= STEP_BYTES:
            size_bytes = _ZSTD_SOURCE_BYTES
            break
        yield b""
    else:  # a small source needs small tables, and little time
        if not piece_bytes:
            yield compress(Compression.ZSTD, b"".join(first), level)
            return
    parameters = zstandard.ZstdCompressionParameters.from_level(
        wanted, source_size=max(size_bytes, 1), write_content_size=False
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    for piece in cut_into_pieces(chain(first, chunks), piece_bytes or STEP_BYTES):
        yield stream.compress(piece)
        if piece_bytes and piece:
            yield stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    yield stream.flush()
