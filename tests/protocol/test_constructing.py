"""The Python that constructs."""

from __future__ import annotations

from minibroker.protocol.declare import Struct, field, generate_constructor, int32
from tests.protocol.samples import Nothing, Order


class Basket(Struct):
    count: int32 = field(default=1)
    words: list[str] = field()
    shop: Order.Shop = field()


def test_the_generated_constructor_has_a_line_per_field_and_no_loop() -> None:
    assert generate_constructor(Basket).lines == [
        "def __init__(self, *, count=1, words=MISSING, shop=MISSING):",
        "    self.count = count",
        "    self.words = [] if words is MISSING else words",
        "    self.shop = Shop() if shop is MISSING else shop",
    ]


def test_a_struct_without_fields_is_constructed() -> None:
    assert generate_constructor(Nothing).lines == ["def __init__(self):", "    pass"]


def test_default_nested_structs_are_not_shared_between_instances() -> None:
    first, second = Basket(), Basket()
    first.shop.id = 7
    assert second.shop.id == -1
