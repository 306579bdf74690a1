"""Patterns of schemas are found in names, and each comparison pays for its own."""

from __future__ import annotations

import threading

import pytest

from minibroker.patterns.program import Pattern
from minibroker.registry.formats.comparing_budget import ComparingBudget, ComparisonTooLarge
from minibroker.registry.formats.searching import PatternFinder

PATTERN, NAME = "(a|b|ab)*c", "ab" * 50


def test_a_pattern_is_searched_anywhere_in_a_property_name() -> None:
    finder = PatternFinder(ComparingBudget())
    assert finder.matches_part_of_name("^a.c$", "aéc") and finder.matches_part_of_name("b", "abc")
    assert not finder.matches_part_of_name("^b", "abc") and not finder.matches_part_of_name("(?=a)", "a")


def test_too_long_searches_are_rejected() -> None:
    finder = PatternFinder(ComparingBudget())
    with pytest.raises(ComparisonTooLarge, match="steps"):
        for number in range(1 << 16):  # every name leads to other states
            finder.matches_part_of_name("(a|b)*a(a|b){20}c", f"{number:016b}".replace("0", "a").replace("1", "b"))


def test_comparisons_in_other_threads_do_not_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, other_budget, among_others = ComparingBudget(), ComparingBudget(), ComparingBudget()
    assert not PatternFinder(alone).matches_part_of_name(PATTERN, NAME)
    step, others = (
        Pattern._advance_over_character,
        [threading.Thread(target=lambda: PatternFinder(other_budget).matches_part_of_name(PATTERN, f"b{NAME}"))],
    )

    def step_among_others(pattern: Pattern, *where: object) -> frozenset[int]:
        if others:
            other = others.pop()
            other.start()
            other.join()
        return step(pattern, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(Pattern, "_advance_over_character", step_among_others)
    assert not PatternFinder(among_others).matches_part_of_name(PATTERN, NAME)
    assert among_others.spent_steps == alone.spent_steps != other_budget.spent_steps > 0
