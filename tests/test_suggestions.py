"""Which name is suggested for a misspelt one."""

from __future__ import annotations

import pytest

from minibroker.suggestions import format_suggestion_of_similar_name

NAMES = ("orders", "Payments", "returns")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("ordres", "; did you mean orders?"),
        ("payment", "; did you mean Payments?"),
        ("ORDERS", "; did you mean orders?"),
    ],
)
def test_the_nearest_name_is_suggested_in_its_spelling(name: str, suggestion: str) -> None:
    assert format_suggestion_of_similar_name(name, NAMES) == suggestion


@pytest.mark.parametrize("name", ["", "x", "something"])
def test_nothing_is_suggested_for_a_dissimilar_name(name: str) -> None:
    assert format_suggestion_of_similar_name(name, NAMES) == ""
