"""Python's own zstd, in the place of the library: it reads what the library writes, and the other way round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import zstandard

from minibroker.protocol.errors import CorruptBatch, KafkaError
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import Compression, compress, decompress, decompress_chunks

ADAPTER = "minibroker.protocol.records.standard_zstd"
DATA = [b"", b"tea", bytes(300_000), bytes(range(256)) * 2000]
SKIPPED = b"\x50\x2a\x4d\x18\x03\0\0\0tea"


@pytest.fixture(autouse=True)
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let the codecs find no library."""
    if find_spec("compression") is None:  # before Python 3.14
        monkeypatch.setitem(sys.modules, "compression", ModuleType("compression"))
        monkeypatch.setitem(sys.modules, "compression.zstd", import_module("backports.zstd"))
    yield import_module(ADAPTER)
    sys.modules.pop(ADAPTER)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)


def write_stream(data: bytes) -> bytes:
    """Compress without the size of the content."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def write_with_checksum(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("data", DATA, ids=len)
@pytest.mark.parametrize("write", [zstandard.compress, write_stream, write_with_checksum])
def test_the_decoder_reads_frames_that_the_zstd_library_writes(data: bytes, write: Callable[[bytes], bytes]) -> None:
    assert decompress(Compression.ZSTD, write(data), 1 << 20) == data
    many = SKIPPED + write(data) + SKIPPED + write(b"more")
    assert b"".join(decompress_chunks(Compression.ZSTD, many, 1 << 20)) == data + b"more"


@pytest.mark.parametrize("level", [None, -5, 1, 19, 22])
@pytest.mark.parametrize("data", DATA, ids=len)
def test_the_zstd_library_reads_frames_of_the_standard_library(
    data: bytes, level: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        whole = compress(Compression.ZSTD, data, level)
        pieces = b"".join(compress_chunks(Compression.ZSTD, [data, b"", b"end"], level))
    assert decompress(Compression.ZSTD, whole, 1 << 20) == data
    assert decompress(Compression.ZSTD, pieces, 1 << 20) == data + b"end"
    assert len(whole) < len(data) + 20


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "damaged",
    [b"", b"meow", zstandard.compress(DATA[2])[:-1], zstandard.compress(b"tea") + b"meow", b"\x28\xb5\x2f\xfd\x00\xff"],
)
def test_corrupt_zstd_data_is_rejected(damaged: bytes) -> None:
    with pytest.raises(CorruptBatch, match="invalid zstd data"):
        decompress(Compression.ZSTD, damaged, 1 << 20)


@pytest.mark.usefixtures("alone")
def test_decompression_ends_at_the_size_limit() -> None:
    with pytest.raises(KafkaError, match="more than 1000 bytes"):
        decompress(Compression.ZSTD, zstandard.compress(bytes(1 << 24)), 1000)


def test_the_decoder_knows_the_size_of_each_zstd_frame_header(adapter: Any) -> None:
    for flags in range(256):
        header = zstandard.FRAME_HEADER + bytes((flags,)) + bytes(14)
        if not flags & 0x08:  # a bit that is reserved
            assert adapter.frame_header_size(header) == zstandard.frame_header_size(header), flags
    with pytest.raises(adapter.ZstdError):
        adapter.frame_header_size(b"meow!")
