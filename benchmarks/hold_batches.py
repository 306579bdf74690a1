"""Batches that cost a broker more than their bytes: endless headers, a million tiny records, bombs.

Each is one that Kafka's rules allow, or that a broker finds fault with only after it has looked.
"""

from __future__ import annotations

import os
from functools import cache

from minibroker.protocol.records.batch import MAGIC, BatchHeader
from minibroker.protocol.records.building import assemble_batch
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.varints import encode_zigzag
from wire import now_ms

MB = 1_000_000
EMPTY_HEADER = encode_zigzag(0) + encode_zigzag(0)  # a key and a value of no bytes
NULL = encode_zigzag(-1)


@cache
def headers_batch(count: int) -> bytes:
    """One record with a key and `count` empty headers, in zstd."""
    body = b"\0\0\0" + encode_zigzag(1) + b"k" + NULL + encode_zigzag(count) + EMPTY_HEADER * count
    return _batch(encode_zigzag(len(body)) + body, 1, Compression.ZSTD)


@cache
def tiny_records_batch(count: int, codec: int = Compression.ZSTD) -> bytes:
    """`count` records without key, value or headers."""
    tail = NULL + NULL + encode_zigzag(0)
    bodies = (b"\0\0" + encode_zigzag(delta) + tail for delta in range(count))
    return _batch(b"".join([encode_zigzag(len(body)) + body for body in bodies]), count, codec)


@cache
def bomb(codec: int, size_mb: int, random_bytes: int = 0) -> bytes:
    """One record whose value is `size_mb` of zeros, and before them some bytes that do not compress."""
    value = os.urandom(random_bytes) + bytes(size_mb * MB)
    body = b"\0\0\0" + NULL + encode_zigzag(len(value)) + value + encode_zigzag(0)
    return _batch(encode_zigzag(len(body)) + body, 1, codec)


def _batch(payload: bytes, count: int, codec: int) -> bytes:
    now = now_ms()
    header = BatchHeader(0, 0, -1, MAGIC, 0, codec, count - 1, now, now, -1, -1, -1, count)
    return bytes(assemble_batch(header, compress(codec, payload)))
