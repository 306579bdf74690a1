"""The map of keys against a dict, when it is full, and the memory that it takes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.compaction.offset_map import ENTRY_BYTES, NOT_FOUND, OffsetMap

MIB = 1 << 20


def full_map(memory_bytes: int, load_factor: float = 0.9) -> tuple[OffsetMap, int]:
    """A map that has no more room, and how many keys it took."""
    keys = OffsetMap(memory_bytes, load_factor, 1 << 40)
    for offset in range(1 << 20):
        if not keys.put_offset_of_key(b"%d" % offset, offset):
            return keys, offset
    raise AssertionError("it takes more than it has room for")


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=300))
def test_the_offset_map_finds_the_same_offsets_as_a_dict(steps: list[tuple[bytes, bytes]]) -> None:
    keys, known = OffsetMap(MIB, 0.9, len(steps)), dict[bytes, int]()
    for offset, (key, other) in enumerate(steps):
        assert keys.put_offset_of_key(key, offset)
        known[key] = offset
        assert keys.find_offset_of_key(key) == offset
        assert keys.find_offset_of_key(other) == known.get(other, NOT_FOUND)
    assert keys.count == len(known)
    assert keys.latest_offset == len(steps) - 1
    assert {key: keys.find_offset_of_key(key) for key in known} == known


def test_a_nearly_full_offset_map_finds_many_keys() -> None:
    keys = OffsetMap(10_000 * ENTRY_BYTES, 0.98, 1 << 40)
    for offset in range(keys.capacity):
        assert keys.put_offset_of_key(b"key-%d" % offset, 3 * offset)
    assert all(keys.find_offset_of_key(b"key-%d" % offset) == 3 * offset for offset in range(keys.capacity))
    assert all(keys.find_offset_of_key(b"other-%d" % offset) == NOT_FOUND for offset in range(1000))


@pytest.mark.parametrize(("memory_bytes", "load_factor"), [(72, 0.9), (1000, 0.5), (100_000, 0.9), (100_000, 1.0)])
def test_the_offset_map_uses_at_most_its_share_of_the_memory(memory_bytes: int, load_factor: float) -> None:
    keys, count = full_map(memory_bytes, load_factor)
    assert count == keys.count == keys.capacity
    assert 1 <= count <= memory_bytes / ENTRY_BYTES * load_factor
    assert keys.size_bytes <= memory_bytes


def test_a_full_offset_map_updates_the_offsets_of_existing_keys() -> None:
    keys, count = full_map(1000)
    assert keys.put_offset_of_key(b"0", count + 5)
    assert keys.find_offset_of_key(b"0") == keys.latest_offset == count + 5
    assert not keys.put_offset_of_key(b"new", count + 6)
    assert keys.find_offset_of_key(b"new") == NOT_FOUND
    assert keys.latest_offset == count + 5


def test_the_offset_map_allocates_memory_only_for_the_possible_number_of_keys() -> None:
    keys = OffsetMap(128 * MIB, 0.9, 1000)
    assert 1000 <= keys.capacity < 1050
    assert keys.size_bytes < 30_000


def test_the_offset_maps_memory_equals_its_declared_size() -> None:
    keys = OffsetMap(MIB, 0.9, 1 << 40)
    taken = sum(sys.getsizeof(getattr(keys, name)) for name in keys.__slots__)
    assert taken < keys.size_bytes + 1000 <= MIB + 1000


def test_the_number_of_slots_is_prime() -> None:
    for keys in range(1, 200):
        slots = OffsetMap(MIB, 0.9, keys).size_bytes // ENTRY_BYTES
        assert slots > keys and all(slots % divisor for divisor in range(2, slots)), keys
