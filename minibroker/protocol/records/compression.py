"""The five codecs of record batches: compress, and decompress within a bound.

Which codec a topic or batch wants is decided elsewhere. Each library is imported on first use: most brokers never look
into a compressed batch, and start faster without.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from struct import Struct

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError

Bytes = bytes | bytearray | memoryview


class Compression(IntEnum):
    """A codec by its number in a batch's attributes; the names, in lower case, are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Bytes, level: int | None = None) -> Bytes:
    """`data` compressed as Kafka's producers and brokers do it; codec 0 gives `data` itself.

    `level` is Kafka's: gzip 1-9 or -1, lz4 1-17, zstd -131072 to 22, snappy has none; None is Kafka's default.
    Raises `KafkaError` (UNSUPPORTED_COMPRESSION_TYPE) for codecs 5-7.
    """
    if codec == Compression.NONE:
        return data
    return _COMPRESSORS[_known(codec)](data, level)


def decompress(codec: int, data: Bytes, limit_bytes: int) -> Bytes:
    """What `compress` was given; codec 0 gives `data` itself.

    Takes no more memory than `limit_bytes` and a chunk of 1 MiB, whatever `data` announces. Raises `CorruptBatch` for
    bytes that are not of this codec, `KafkaError` with MESSAGE_TOO_LARGE for more than `limit_bytes`, and with
    UNSUPPORTED_COMPRESSION_TYPE for codecs 5-7.
    """
    if codec == Compression.NONE:
        return data
    return _joined(_DECOMPRESSORS[_known(codec)](data, limit_bytes), limit_bytes)


def _known(codec: int) -> int:
    if codec in _COMPRESSORS:
        return codec
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}")


def _joined(chunks: Iterable[bytes], limit_bytes: int) -> bytes:
    """All chunks as one; each is made only after the ones before it were counted."""
    parts: list[bytes] = []
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit_bytes} bytes")


# --- gzip -------------------------------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 20  # what a decompressor may give at once
_INPUT_BYTES = 1 << 16  # what it is fed at once: at the end of each member or frame it copies the rest of its input
_GZIP_WINDOW = 31  # zlib's largest window, plus 16 for gzip's header and trailer
_GZIP_MAGIC = b"\x1f\x8b"


def _gzip_compress(data: Bytes, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WINDOW)


def _gzip_chunks(data: Bytes, limit_bytes: int) -> Iterator[bytes]:
    """Members one after another, as Java's GZIPInputStream reads them: what follows a member and is none is ignored."""
    view = memoryview(data)
    position = 0
    while position == 0 or view[position : position + 2] == _GZIP_MAGIC:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            source: Bytes = stream.unconsumed_tail
            if not source:
                source = view[position : position + _INPUT_BYTES]
                position += len(source)
            try:
                chunk = stream.decompress(source, _CHUNK_BYTES)
            except zlib.error as error:
                raise CorruptBatch(f"invalid gzip data: {error}") from error
            if not chunk and not source:
                raise CorruptBatch("invalid gzip data: it ends early")
            yield chunk
        position -= len(stream.unused_data)


# --- snappy -----------------------------------------------------------------------------------------------------------

# The framing of xerial's snappy-java, which Kafka's clients and brokers write: the magic, then two int32 (version and
# oldest compatible version, both 1), then blocks: int32 size, and so many bytes of raw snappy. Other clients send one
# raw block without a frame. As in snappy-java, what does not start with the magic is a raw block.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


def _snappy_compress(data: Bytes, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _snappy_chunks(data: Bytes, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(view, limit_bytes)
        return
    left_bytes = limit_bytes
    for block in _xerial_blocks(view):
        chunk = _snappy_block(block, left_bytes)
        left_bytes -= len(chunk)
        yield chunk


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptBatch("invalid snappy data: it ends in the frame's header")
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # two frames, concatenated
            position += len(_XERIAL_HEADER)
            continue
        if len(view) - position < _INT32.size:
            raise CorruptBatch("invalid snappy data: it ends in a block's size")
        (size_bytes,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= size_bytes <= len(view) - position:
            raise CorruptBatch(f"invalid snappy data: a block of {size_bytes} bytes, {len(view) - position} are left")
        yield view[position : position + size_bytes]
        position += size_bytes


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    """One raw block; the length it announces is what the library will allocate, so that is looked at first."""
    import cramjam

    try:
        announced_bytes = cramjam.snappy.decompress_raw_len(block)
        if announced_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"invalid snappy data: {error}") from error


# --- lz4 --------------------------------------------------------------------------------------------------------------

_LZ4_DEFAULT_LEVEL = 9  # Kafka's default, for which its library takes the fast compressor (level 0 here)


def _lz4_compress(data: Bytes, level: int | None) -> bytes:
    """A frame as Kafka writes it: independent blocks of 64 KB, no content size, no content checksum."""
    from lz4 import frame

    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_DEFAULT_LEVEL) else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _lz4_chunks(data: Bytes, limit_bytes: int) -> Iterator[bytes]:
    """The first frame; as in Kafka, what follows its end mark is ignored."""
    from lz4.frame import LZ4FrameDecompressor

    view = memoryview(data)
    stream = LZ4FrameDecompressor()
    position = 0
    while not stream.eof:
        source = view[position : position + _INPUT_BYTES] if stream.needs_input else b""
        position += len(source)
        try:
            chunk = stream.decompress(source, _CHUNK_BYTES)
        except RuntimeError as error:
            raise CorruptBatch(f"invalid lz4 data: {error}") from error
        if not chunk and not source and not stream.eof:
            raise CorruptBatch("invalid lz4 data: it ends early")
        yield chunk


# --- zstd -------------------------------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MIN_WINDOW_BYTES = 1 << 23  # levels up to 19 use windows up to this
_ZSTD_MAX_WINDOW_BYTES = 1 << 27  # what Kafka's library takes at most


def _zstd_compress(data: Bytes, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level).compress(data)


def _zstd_chunks(data: Bytes, limit_bytes: int) -> Iterator[bytes]:
    """Frame after frame, with or without their content's size, streamed: the library trusts an announced size."""
    import zstandard

    window_bytes = min(max(1 << limit_bytes.bit_length(), _ZSTD_MIN_WINDOW_BYTES), _ZSTD_MAX_WINDOW_BYTES)
    stream = zstandard.ZstdDecompressor(max_window_size=window_bytes).stream_reader(data, read_across_frames=True)
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"invalid zstd data: {error}") from error


_COMPRESSORS: dict[int, Callable[[Bytes, int | None], bytes]] = {
    Compression.GZIP: _gzip_compress,
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: dict[int, Callable[[Bytes, int], Iterator[bytes]]] = {
    Compression.GZIP: _gzip_chunks,
    Compression.SNAPPY: _snappy_chunks,
    Compression.LZ4: _lz4_chunks,
    Compression.ZSTD: _zstd_chunks,
}
