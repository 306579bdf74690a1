"""The hash of Kafka's Java client, by which keys choose partitions."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def compute_murmur2(key: bytes) -> int:
    """Return the hash of one key, an unsigned 32-bit number."""
    value = (SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * MULTIPLIER & _MASK
        word = (word ^ word >> 24) * MULTIPLIER & _MASK
        value = (value * MULTIPLIER & _MASK) ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & _MASK
    value = (value ^ value >> 13) * MULTIPLIER & _MASK
    return value ^ value >> 15


def choose_partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's Java producer chooses it."""
    return (compute_murmur2(key) & 0x7FFFFFFF) % partitions
