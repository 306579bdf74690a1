"""The order of Java's HashSet, as a JVM showed it."""

from __future__ import annotations

from minibroker.registry.formats.java_order import unite_in_java_order


def test_strings_and_numbers_are_in_the_order_of_javas_hash_set() -> None:
    assert unite_in_java_order(["foo"], ["bar"]) == ["bar", "foo"]
    names = [f"name{number}" for number in range(20)] + ["é", "😀", ""]
    listed = ", é, name19, name18, name17, name16, name6, name15, name5, name14, name4, name13, name3, name12, name11, "
    listed += "name9, name10, name8, name7, 😀, name2, name1, name0"
    assert ", ".join(unite_in_java_order(names[:12], names[12:])) == listed
    assert unite_in_java_order([100, 3, 17, -1], [40]) == [-1, 17, 3, 100, 40]
