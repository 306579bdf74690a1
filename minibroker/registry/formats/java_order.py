"""The order in which Java's HashSet lists what is in it: Confluent's registry lists the differences of schemas so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

LEAST_BUCKETS: Final = 16
LOAD_FACTOR: Final = 0.75

Key = TypeVar("Key", str, int)


def unite_in_java_order(first: Collection[Key], added_keys: Iterable[Key] = ()) -> list[Key]:
    """Return the keys of `new HashSet<>(first)` after `addAll(added)`, in the order of its iterator."""
    keys = dict.fromkeys(first)
    buckets = LEAST_BUCKETS
    while buckets < len(keys) / LOAD_FACTOR + 1:
        buckets *= 2
    keys.update(dict.fromkeys(added_keys))
    while len(keys) > buckets * LOAD_FACTOR:
        buckets *= 2
    return sorted(keys, key=lambda key: _spread_hash(key) & (buckets - 1))


def _spread_hash(key: str | int) -> int:
    """Return what a HashMap makes of a key's hash code."""
    code = key & 0xFFFFFFFF if isinstance(key, int) else _hash_text(key)
    return code ^ (code >> 16)


def _hash_text(text: str) -> int:
    """Return `String.hashCode()`, without its sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return code
