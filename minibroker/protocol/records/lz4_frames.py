"""The header checksum of lz4 frames, which is wrong in Kafka's message format 0, and right from format 1 on (KIP-57).

    byte  size  field of a frame's header
       0     4  magic
       4     1  flags                   bit 3: the content size follows; bit 0: a dictionary id follows
       5     1  block size
       6    0-12 content size (8), dictionary id (4)
             1  checksum                second byte of xxHash32 of the header, from byte 4 on

Kafka's producers up to 0.9 hashed from byte 0 on, with the magic. Readers of format 0 must ignore the checksum.
"""

from __future__ import annotations

from struct import Struct

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.varints import Bytes

_FLAGS_POSITION = 4
_FIXED_BYTES = 6
_CONTENT_SIZE_BIT = 0x08
_DICTIONARY_BIT = 0x01

_MASK = 0xFFFFFFFF
_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_UINT32 = Struct("<I")


def set_standard_checksum(frame: Bytes) -> bytearray:
    """Return a copy of the frame with the header checksum of the lz4 format. Raises `CorruptBatch`."""
    return _set_header_checksum(frame, _FLAGS_POSITION)


def set_format_0_checksum(frame: Bytes) -> bytearray:
    """Return a copy of the frame with the header checksum of Kafka's message format 0. Raises `CorruptBatch`."""
    return _set_header_checksum(frame, 0)


def _set_header_checksum(frame: Bytes, hashed_start: int) -> bytearray:
    """Return a copy of the frame with a checksum of its header's bytes from `hashed_start` on."""
    if len(frame) < _FIXED_BYTES + 1:
        raise CorruptBatch("invalid lz4 data: it ends in the frame's header")
    copy = bytearray(frame)
    flags = copy[_FLAGS_POSITION]
    at = _FIXED_BYTES + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    if at >= len(copy):
        raise CorruptBatch("invalid lz4 data: it ends in the frame's header")
    copy[at] = compute_xxhash32(bytes(copy[hashed_start:at])) >> 8 & 0xFF
    return copy


def compute_xxhash32(data: bytes) -> int:
    """Compute xxHash32 with seed 0, for the few bytes of a header."""
    position = 0
    if len(data) >= 16:
        lanes = [(_PRIMES[0] + _PRIMES[1]) & _MASK, _PRIMES[1], 0, -_PRIMES[0] & _MASK]
        while position + 16 <= len(data):
            for lane in range(4):
                lanes[lane] = _mix_word_into_lane(lanes[lane], _UINT32.unpack_from(data, position + 4 * lane)[0])
            position += 16
        value = sum(_rotate_bits(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = _PRIMES[4]
    return _finish_xxhash32(value + len(data), data[position:])


def _finish_xxhash32(value: int, remaining_bytes: bytes) -> int:
    """Return the hash after the last bytes, fewer than 16."""
    position = 0
    while position + 4 <= len(remaining_bytes):
        word = _UINT32.unpack_from(remaining_bytes, position)[0]
        value = _rotate_bits(value + word * _PRIMES[2] & _MASK, 17) * _PRIMES[3] & _MASK
        position += 4
    for byte in remaining_bytes[position:]:
        value = _rotate_bits(value + byte * _PRIMES[4] & _MASK, 11) * _PRIMES[0] & _MASK
    value &= _MASK
    value = (value ^ value >> 15) * _PRIMES[1] & _MASK
    value = (value ^ value >> 13) * _PRIMES[2] & _MASK
    return value ^ value >> 16


def _mix_word_into_lane(lane: int, word: int) -> int:
    return _rotate_bits(lane + word * _PRIMES[1] & _MASK, 13) * _PRIMES[0] & _MASK


def _rotate_bits(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
