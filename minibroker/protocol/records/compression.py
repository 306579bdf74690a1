"""The codecs of record batches: compressing, and decompressing up to a limit, at once or piece by piece.

Each library is imported on first use, so that the broker starts faster.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import IntEnum
from importlib import import_module
from struct import Struct
from typing import Any, Final

from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.records.lz4_frames import set_standard_checksum
from minibroker.protocol.records.varints import Bytes

MAX_UNCOMPRESSED_BYTES: Final = 100 * 1024 * 1024
"""The limit for decompressed records that are held in memory at once, equal to socket.request.max.bytes."""

UNBOUNDED_BYTES = 1 << 62
"""In place of a limit for decompressed records that are looked at and dropped piece by piece: Kafka has none."""

STEP_BYTES = 1 << 16  # decompressed in one step


class Compression(IntEnum):
    """The codecs by their numbers in a batch's attributes. In lower case, the names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Bytes, level: int | None = None) -> Bytes:
    """Compress `data` as Kafka's producers and brokers do; codec 0 returns `data` itself.

    `level` is Kafka's: gzip 1-9 or -1, lz4 1-17, zstd -131072 to 22, snappy has none; None is Kafka's default.
    Raises `KafkaError` (UNSUPPORTED_COMPRESSION_TYPE) for codecs 5-7.
    """
    if codec == Compression.NONE:
        return data
    return _COMPRESSORS[check_codec(codec)](data, level)


def decompress(codec: int, data: Bytes, limit_bytes: int) -> Bytes:
    """Decompress `data`; codec 0 returns `data` itself.

    It takes at most about `limit_bytes` and 4 MiB of memory, whatever size `data` announces. Raises `CorruptBatch`
    for bytes that are not of this codec or end early, `KafkaError` MESSAGE_TOO_LARGE for more than `limit_bytes` (Kafka
    itself has no limit, as it never holds all of it), and UNSUPPORTED_COMPRESSION_TYPE for codecs 5-7.
    """
    if codec == Compression.NONE:
        return data
    return _join_chunks(_DECOMPRESSORS[check_codec(codec)](data, limit_bytes, _CHUNK_BYTES), limit_bytes)


def decompress_chunks(codec: int, data: Bytes, limit_bytes: int, chunk_bytes: int = STEP_BYTES) -> Iterator[Bytes]:
    """Decompress as `decompress` does, in pieces of about `chunk_bytes`, each in less than a millisecond.

    A piece may be empty. With codec 0 the pieces are views of `data`. Raises what `decompress` raises, also for a block
    of snappy of more than `MAX_UNCOMPRESSED_BYTES`, which is decompressed at once.
    """
    if codec == Compression.NONE:
        yield from cut_into_pieces((data,), chunk_bytes)
        return
    left_bytes = limit_bytes
    for chunk in _DECOMPRESSORS[check_codec(codec)](data, limit_bytes, chunk_bytes):
        left_bytes -= len(chunk)
        if left_bytes < 0:
            raise _make_too_large_error(limit_bytes)
        if len(chunk) > chunk_bytes:  # a block of snappy or lz4, which is decompressed at once
            yield from cut_into_pieces((chunk,), chunk_bytes)
        else:
            yield chunk


def cut_into_pieces(chunks: Iterable[Bytes], piece_bytes: int) -> Iterator[Bytes]:
    """Yield the same bytes in pieces of at most `piece_bytes`. Empty chunks, which are pauses, stay."""
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view) or 1, piece_bytes):
            yield view[start : start + piece_bytes]


def check_codec(codec: int) -> int:
    """Return the codec if it is 1-4. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE."""
    if codec in _COMPRESSORS:
        return codec
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}")


def _join_chunks(chunks: Iterator[Bytes], limit_bytes: int) -> Bytes:
    """Join the chunks. Raises at the first one that exceeds the limit, before the next is produced."""
    joined: Bytes = b""
    for chunk in chunks:
        if len(joined) + len(chunk) > limit_bytes:
            raise _make_too_large_error(limit_bytes)
        if not joined:
            joined = chunk  # usually the only one, so it is not copied
        elif isinstance(joined, bytearray):
            joined += chunk
        elif chunk:
            joined = bytearray(joined) + chunk
    return joined


def _make_too_large_error(limit_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit_bytes} bytes")


# --- gzip -------------------------------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 18  # the most that a decompressor returns at once
_INPUT_BYTES = 1 << 15  # its input at once: it copies the rest of its input whenever it stops
GZIP_WINDOW = 31  # zlib's largest window, plus 16 for gzip's header and trailer
_GZIP_MAGIC = b"\x1f\x8b"


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, GZIP_WINDOW)


def _decompress_gzip(data: Bytes, limit_bytes: int, chunk_bytes: int) -> Iterator[Bytes]:
    """Decompress the members, as Java's GZIPInputStream does: it ignores bytes behind a member that are not another."""
    view = memoryview(data)
    position = 0
    while position == 0 or view[position : position + 2] == _GZIP_MAGIC:
        stream = zlib.decompressobj(GZIP_WINDOW)
        while not stream.eof:
            source: Bytes = stream.unconsumed_tail
            if not source:
                source = view[position : position + _INPUT_BYTES]
                position += len(source)
            try:
                chunk = stream.decompress(source, chunk_bytes)
            except zlib.error as error:
                raise CorruptBatch(f"invalid gzip data: {error}") from error
            if not chunk and not source:
                raise CorruptBatch("invalid gzip data: it ends early")
            yield chunk
        position -= len(stream.unused_data)


# --- snappy -----------------------------------------------------------------------------------------------------------

# The framing of xerial's snappy-java, which Kafka's clients and brokers use: the magic, two int32 (version and oldest
# compatible version, both 1), then blocks of an int32 size and that many bytes of raw snappy. Other clients send one
# raw block without a frame. As in snappy-java, data without the magic is a raw block.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


def _compress_snappy(data: Bytes, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        parts.append(compress_xerial_block(view[start : start + XERIAL_BLOCK_BYTES]))
    return b"".join(parts)


def compress_xerial_block(data: Bytes) -> bytes:
    """Return `data` as a block of Xerial's framing: its compressed size, then snappy."""
    from cramjam import snappy

    block = bytes(snappy.compress_raw(data))
    return _INT32.pack(len(block)) + block


def _decompress_snappy(data: Bytes, limit_bytes: int, chunk_bytes: int) -> Iterator[Bytes]:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        limit_bytes = min(limit_bytes, MAX_UNCOMPRESSED_BYTES)  # a block is in memory at once
        yield _decompress_snappy_block(view, limit_bytes, limit_bytes)
        return
    left_bytes = limit_bytes
    for block in _iterate_xerial_blocks(view):
        chunk = _decompress_snappy_block(block, min(left_bytes, MAX_UNCOMPRESSED_BYTES), limit_bytes)
        left_bytes -= len(chunk)
        yield chunk


def _iterate_xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the snappy blocks of frames in Xerial's format. Raises `CorruptBatch`."""
    if len(view) < len(XERIAL_HEADER):
        raise CorruptBatch("invalid snappy data: it ends in the frame's header")
    position = len(XERIAL_HEADER)
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # two frames, concatenated
            position += len(XERIAL_HEADER)
            continue
        if len(view) - position < _INT32.size:
            raise CorruptBatch("invalid snappy data: it ends in a block's size")
        (size_bytes,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= size_bytes <= len(view) - position:
            raise CorruptBatch(f"invalid snappy data: a block of {size_bytes} bytes, {len(view) - position} are left")
        yield view[position : position + size_bytes]
        position += size_bytes


def _decompress_snappy_block(block: memoryview, remaining_bytes: int, limit_bytes: int) -> bytearray:
    """Decompress a raw block. It announces its length, which is checked before memory is allocated.

    `remaining_bytes` is what is left of the limit.
    """
    import cramjam

    try:
        chunk = bytearray(min(cramjam.snappy.decompress_raw_len(block), remaining_bytes + 1))
        if len(chunk) > remaining_bytes:
            raise _make_too_large_error(limit_bytes)
        cramjam.snappy.decompress_raw_into(block, chunk)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"invalid snappy data: {error}") from error
    return chunk


# --- lz4 --------------------------------------------------------------------------------------------------------------

# A frame is a header (see `lz4_frames`), blocks, and four zero bytes. A block is its size in four bytes, lowest first,
# whose highest bit says that it is not compressed; then that many bytes; then a checksum, if the flags say so. Only
# blocks are the library's business: it writes no frames of independent blocks, and decompresses a frame at once.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_VERSION = 0x40  # all these are flags, in the byte after the magic
_LZ4_INDEPENDENT_BLOCKS = 0x20
_LZ4_BLOCK_CHECKSUMS = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_RESERVED = 0x83  # versions, a reserved bit and dictionaries, which Kafka refuses
_LZ4_BLOCK_BYTES = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}  # by the byte after the flags
_LZ4_MAX_RATIO = 255
_LZ4_UNCOMPRESSED = 1 << 31
_LZ4_DEFAULT_LEVEL = 9  # Kafka's default, for which its library uses the fast compressor
_LZ4_FIRST_SLOW_LEVEL = 3
_UINT32 = Struct("<I")
LZ4_HEADER = set_standard_checksum(_LZ4_MAGIC + bytes((_LZ4_VERSION | _LZ4_INDEPENDENT_BLOCKS, 0x40, 0)))
LZ4_BLOCK_BYTES = _LZ4_BLOCK_BYTES[0x40]
LZ4_END = bytes(4)


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    """Return a frame as Kafka writes it: independent blocks of 64 KB, no content size, no content checksum."""
    view = memoryview(data)
    starts = range(0, len(view), LZ4_BLOCK_BYTES)
    return b"".join(
        (LZ4_HEADER, *(compress_lz4_block(view[start : start + LZ4_BLOCK_BYTES], level) for start in starts), LZ4_END)
    )


def compress_lz4_block(data: Bytes, level: int | None) -> bytes:
    """Return a block of a frame with `data`, of at most 64 KB."""
    from cramjam import lz4

    if level is not None and level != _LZ4_DEFAULT_LEVEL and level >= _LZ4_FIRST_SLOW_LEVEL:
        frame = bytes(lz4.compress(data, level=level))  # of one block; blocks alone have no levels there
        size_bytes = _UINT32.unpack_from(frame, len(LZ4_HEADER))[0] & ~_LZ4_UNCOMPRESSED
        return frame[len(LZ4_HEADER) :][: _UINT32.size + size_bytes]
    block = lz4.compress_block(data, store_size=False)
    if len(block) >= len(data):
        return _UINT32.pack(len(data) | _LZ4_UNCOMPRESSED) + data
    return _UINT32.pack(len(block)) + bytes(block)


def _decompress_lz4(data: Bytes, limit_bytes: int, chunk_bytes: int) -> Iterator[Bytes]:
    """Decompress the first frame, block by block.

    As in Kafka, bytes behind it are ignored, so is a checksum of the content, and linked blocks are refused.
    """
    view = memoryview(data)
    if view[:4] != _LZ4_MAGIC or len(view) < 5 or not view[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptBatch("invalid lz4 data: not a frame of independent blocks")
    header, position = _read_lz4_header(view)
    has_checksums = bool(header[4] & _LZ4_BLOCK_CHECKSUMS)
    while True:
        if len(view) - position < _UINT32.size:
            raise CorruptBatch("invalid lz4 data: it ends early")
        (word,) = _UINT32.unpack_from(view, position)
        if word == 0:
            break
        end = position + _UINT32.size + (word & ~_LZ4_UNCOMPRESSED) + (_UINT32.size if has_checksums else 0)
        if end > len(view):
            raise CorruptBatch("invalid lz4 data: it ends early")
        yield _decompress_lz4_block(header, view[position:end])
        position = end
    if view[4] & _LZ4_CONTENT_CHECKSUM and len(view) - position < 2 * _UINT32.size:
        raise CorruptBatch("invalid lz4 data: it ends early")


def _read_lz4_header(view: memoryview) -> tuple[bytes, int]:
    """Return a header with which each block can be decompressed by itself, and where the blocks begin."""
    flags = view[4]
    size_bytes = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    whole = bytes(view[:size_bytes])
    if flags & _LZ4_RESERVED or not flags & _LZ4_VERSION or whole[5:6] not in map(_encode_byte, _LZ4_BLOCK_BYTES):
        raise CorruptBatch("invalid lz4 data: its header has values that are not known")
    if len(whole) < size_bytes or set_standard_checksum(whole) != whole:
        raise CorruptBatch("invalid lz4 data: the header's checksum is wrong")
    kept = _LZ4_VERSION | _LZ4_INDEPENDENT_BLOCKS | flags & _LZ4_BLOCK_CHECKSUMS
    return bytes(set_standard_checksum(_LZ4_MAGIC + bytes((kept, whole[5], 0)))), size_bytes


def _encode_byte(value: int) -> bytes:
    return bytes((value,))


def _decompress_lz4_block(header: bytes, block: memoryview) -> Bytes:
    """Decompress a block, with its size and its checksum."""
    from cramjam import DecompressionError, lz4

    buffer = bytearray(min(_LZ4_BLOCK_BYTES[header[5]], _LZ4_MAX_RATIO * len(block)))
    try:
        size_bytes: int = lz4.decompress_into(b"".join((header, block, LZ4_END)), buffer)
    except DecompressionError as error:
        raise CorruptBatch(f"invalid lz4 data: {error}") from error
    return memoryview(buffer)[:size_bytes]


# --- zstd -------------------------------------------------------------------------------------------------------------

ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MIN_WINDOW_BYTES = 1 << 23  # levels up to 19 use windows up to this
_ZSTD_MAX_HEADER_BYTES = 18
_ZSTD_MAX_WINDOW_BYTES = 1 << 27  # the limit of Kafka's library


def load_zstandard() -> Any:
    """Return the library, or Python's own. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE without both."""
    try:
        import zstandard  # each batch comes here: `import_module` takes several times as long
    except ModuleNotFoundError:
        return _load_standard_zstd()
    return zstandard


def _load_standard_zstd() -> Any:
    try:
        return import_module("minibroker.protocol.records.standard_zstd")
    except ModuleNotFoundError:
        message = "zstd needs the library zstandard, or Python 3.14"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message) from None


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    compressor = load_zstandard().ZstdCompressor(level=ZSTD_DEFAULT_LEVEL if level is None else level)
    compressed: bytes = compressor.compress(data)
    return compressed


def _decompress_zstd(data: Bytes, limit_bytes: int, chunk_bytes: int) -> Iterator[Bytes]:
    """Decompress all frames as a stream, as the library's one-shot function trusts the announced size."""
    zstandard = load_zstandard()
    window_bytes = min(max(1 << limit_bytes.bit_length(), _ZSTD_MIN_WINDOW_BYTES), _ZSTD_MAX_WINDOW_BYTES)
    stream = zstandard.ZstdDecompressor(max_window_size=window_bytes).stream_reader(data, read_across_frames=True)
    try:
        while chunk := stream.read(chunk_bytes):
            yield chunk
        end = yield from _find_end_of_zstd_frames(memoryview(data))
        if not data or end != len(data):
            raise CorruptBatch("invalid zstd data: it ends early")
    except (zstandard.ZstdError, IndexError) as error:
        raise CorruptBatch(f"invalid zstd data: {error}") from error


def _find_end_of_zstd_frames(view: memoryview) -> Generator[Bytes, None, int]:
    """Return where the last frame ends by its headers: behind the data if it is truncated. Empty chunks are pauses.

    The stream reader does not report truncated data. A pause comes after every 1024 frames or blocks.

    Frame (RFC 8878): header, blocks, and 4 bytes of checksum if the header says so. Block: 3 bytes, lowest first: bit 0
    is set in the last one, bits 1-2 are its type (1: one byte, repeated), bits 3-23 its size. Skippable frame: its own
    magic, 4 bytes of size, and that many bytes.
    """
    frame_header_size = load_zstandard().frame_header_size
    position = passed = 0
    while position < len(view):
        passed += 1
        if passed & 1023 == 0:
            yield b""
        if view[position] & 0xF0 == 0x50:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            continue
        has_checksum = view[position + 4] & 0x04
        position += frame_header_size(view[position : position + _ZSTD_MAX_HEADER_BYTES])
        block = 0
        while not block & 1:
            block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            position += 3 + (1 if block & 0x06 == 0x02 else block >> 3)
            passed += 1
            if passed & 1023 == 0:
                yield b""
        position += 4 if has_checksum else 0
    return position


_COMPRESSORS: dict[int, Callable[[Bytes, int | None], bytes]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[Bytes, int, int], Iterator[Bytes]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
