"""A map from key to last offset, for millions of keys in bounded memory. Compaction fills it from the dirty part.

It is a hash table with open addressing. It stores a hash of 128 bits instead of the key, so that an entry takes 24
bytes however long the key is (a dict of bytes to int takes about 180). A collision is as unlikely as in Kafka, whose
map does the same. The columns are arrays, because one step in them costs half of what a slice of a bytearray does.

    column  bytes  of each slot
    first       8  half of the hash, its lowest bit set: never 0, which stands for a free slot
    second      8  the other half
    offset      8
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b
from math import isqrt
from struct import Struct

ENTRY_BYTES = 24
NOT_FOUND = -1

_HASH_BYTES = 16
_halves: Callable[[bytes], tuple[int, ...]] = Struct("=QQ").unpack


class OffsetMap:
    """Offsets by key, in no more than `memory_bytes`, of which the share `load_factor` (up to 1) may be filled.

    `capacity` is the number of keys that fit, `count` the number of keys. `latest_offset` is the last offset of the log
    that was put in, -1 for none. A caller that skips records sets it.
    """

    __slots__ = ("capacity", "count", "latest_offset", "_slots", "_first", "_second", "_offsets")

    def __init__(self, memory_bytes: int, load_factor: float, keys_at_most: int) -> None:
        """Allocate all memory at once, but for no more than `keys_at_most` keys."""
        self._slots = slots = _choose_prime_slot_count(memory_bytes // ENTRY_BYTES, int(keys_at_most / load_factor) + 1)
        self.capacity = min(int(slots * load_factor), slots - 1)  # a lookup ends at a free slot
        self.count = 0
        self.latest_offset = -1
        self._first = array("Q", (0,)) * slots
        self._second = array("Q", (0,)) * slots
        self._offsets = array("q", (0,)) * slots

    @property
    def size_bytes(self) -> int:
        """The allocated memory."""
        return self._slots * ENTRY_BYTES

    def put_offset_of_key(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key's latest record. Return False, and change nothing, if there is no room."""
        first, second = _halves(blake2b(key, digest_size=_HASH_BYTES).digest())
        first |= 1
        slots, firsts = self._slots, self._first
        at = first % slots
        while (found := firsts[at]) and (found != first or self._second[at] != second):
            at = (at + second % (slots - 1) + 1) % slots
        if not found:
            if self.count >= self.capacity:
                return False
            self.count += 1
            firsts[at] = first
            self._second[at] = second
        self._offsets[at] = self.latest_offset = offset
        return True

    def find_offset_of_key(self, key: bytes) -> int:
        """Return the last offset of the key, `NOT_FOUND` if it was never put in."""
        first, second = _halves(blake2b(key, digest_size=_HASH_BYTES).digest())
        first |= 1
        slots, firsts = self._slots, self._first
        at = first % slots
        while found := firsts[at]:
            if found == first and self._second[at] == second:
                return self._offsets[at]
            at = (at + second % (slots - 1) + 1) % slots  # `slots` is prime, so that every step reaches all slots
        return NOT_FOUND


def _choose_prime_slot_count(max_slots: int, min_slots: int) -> int:
    """Return the first prime from `min_slots` on, or the last one up to `max_slots`."""
    slots = _find_prime_from(min_slots, step=1) if min_slots < max_slots else max_slots
    return slots if slots < max_slots else _find_prime_from(max_slots, step=-1)


def _find_prime_from(number: int, step: int) -> int:
    """Return the first prime from `number` on, upwards or downwards; 3 at least."""
    number = max(number, 3)
    while not (number % 2 and all(number % divisor for divisor in range(3, isqrt(number) + 1, 2))):
        number += step
    return number
