"""The order of Kafka's hash tables, in which it lists groups and members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from minibroker.broker.coordination.coordinator_logs import hash_as_java

Item = TypeVar("Item")

SPREAD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio
LONG = (1 << 64) - 1


class HashOrder(Generic[Item]):
    """Items in the order in which a `TimelineHashMap` of Kafka that has grown to `count` keys iterates over them."""

    def __init__(self, count: int) -> None:
        self._size = 2
        while 3 * count > 4 * self._size:
            self._size *= 2
        self._slots: dict[int, list[Item]] = {}

    def add_item(self, key: str, item: Item) -> None:
        """Add an item, which comes before the earlier ones in the same slot of the hash table."""
        slot = (hash_as_java(key) * SPREAD & LONG) * self._size >> 64
        self._slots.setdefault(slot, []).append(item)

    def __iter__(self) -> Iterator[Item]:
        for slot in range(self._size):
            yield from reversed(self._slots.get(slot, ()))


def find_java_hash_slot(key: str) -> int:
    """Return the slot of a key in a `HashMap` of Java that has not grown: 16 slots, iterated over in their order."""
    value = hash_as_java(key) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15


def iterate_in_hash_order(items: Mapping[str, Item]) -> Iterator[Item]:
    """Iterate over the values in the order in which Kafka's hash table with these keys does."""
    order: HashOrder[Item] = HashOrder(len(items))
    for key, item in items.items():
        order.add_item(key, item)
    return iter(order)
