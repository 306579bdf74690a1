"""What the codecs use of the library zstandard, made of the zstd that Python has itself, from 3.14 on.

A browser has no other. Importing this raises ModuleNotFoundError where Python lacks it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from minibroker.protocol.records.varints import Bytes

zstd: Any = import_module("compression.zstd")

ZstdError: Final = zstd.ZstdError
COMPRESSOBJ_FLUSH_BLOCK: Final = zstd.ZstdCompressor.FLUSH_BLOCK
INPUT_BYTES: Final = 1 << 15  # of a decompressor at once: it copies what is behind a frame
MAGIC: Final = b"\x28\xb5\x2f\xfd"
TABLE_LOGS: Final = 10, 18  # what a source of an unknown size would need, takes hundreds of megabytes


class ZstdCompressionParameters:
    """The parameters of a stream."""

    @staticmethod
    def from_level(level: int, source_size: int, write_content_size: bool) -> dict[Any, int]:
        """Return parameters with tables for a source of this size."""
        names = zstd.CompressionParameter
        least, most = TABLE_LOGS
        size_log = min(max(source_size.bit_length(), least), most)
        return {
            names.compression_level: level,
            names.content_size_flag: int(write_content_size),
            **dict.fromkeys((names.window_log, names.hash_log, names.chain_log), size_log),
        }


class ZstdCompressor:
    """Compresses at a level, or with parameters."""

    def __init__(self, level: int | None = None, compression_params: dict[Any, int] | None = None) -> None:
        self._of_level, self._parameters = level, compression_params

    def compress(self, data: Bytes) -> bytes:
        """Return the data as one zstd frame."""
        compressed: bytes = zstd.compress(data, self._of_level, self._parameters)
        return compressed

    def compressobj(self) -> Any:
        """Return an object that compresses a frame piece by piece by `compress` and `flush`."""
        return zstd.ZstdCompressor(self._of_level, self._parameters)


class ZstdDecompressor:
    """Decompresses frames whose windows are not larger than `max_window_size`."""

    def __init__(self, max_window_size: int) -> None:
        self._options = {zstd.DecompressionParameter.window_log_max: max_window_size.bit_length() - 1}

    def stream_reader(self, data: Bytes, *, read_across_frames: bool) -> ZstdReader:
        """Return a reader of the decompressed bytes of all frames."""
        return ZstdReader(memoryview(data), self._options)


class ZstdReader:
    """Reads what is in frames, one after the other."""

    def __init__(self, view: memoryview, options: dict[Any, int]) -> None:
        self._view, self._options = view, options
        self._position = 0
        self._frame = zstd.ZstdDecompressor(options=options)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end, also of frames that end early. Raises ZstdError."""
        while True:
            if self._frame.eof:
                self._position -= len(self._frame.unused_data)
                self._frame = zstd.ZstdDecompressor(options=self._options)
            source: Bytes = b""
            if self._frame.needs_input:
                source = self._view[self._position : self._position + INPUT_BYTES]
                if not source:
                    return b""
                self._position += len(source)
            chunk: bytes = self._frame.decompress(source, size)
            if chunk:
                return chunk


def frame_header_size(header: Bytes) -> int:
    """Return how many bytes a frame's header has (RFC 8878). Raises ZstdError, IndexError."""
    if header[:4] != MAGIC:
        raise ZstdError("Unknown frame descriptor")
    flags = header[4]
    is_single_segment = bool(flags & 0x20)
    content_size_bytes = (int(is_single_segment), 2, 4, 8)[flags >> 6]
    return 5 + (not is_single_segment) + (0, 1, 2, 4)[flags & 0x03] + content_size_bytes
