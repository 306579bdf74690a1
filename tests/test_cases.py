"""Cases that share a test: each is checked, also after one that failed, and those that fail are named."""

from __future__ import annotations

import pytest

from tests.cases import for_each


@pytest.fixture
def checked() -> list[tuple[int, int, int]]:
    """The cases that were checked, of a test of one's own."""
    return []


@for_each("first", [1, 2])
@for_each(("second", "third"), [(3, 4), pytest.param(5, 6)])
def test_all_cases_of_a_test_share_its_fixtures(
    first: int, second: int, third: int, checked: list[tuple[int, int, int]]
) -> None:
    checked.append((first, second, third))
    assert [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)][: len(checked)] == checked


def test_the_failure_of_a_test_names_its_failed_cases() -> None:
    numbers = []

    @for_each("number", range(4))
    def check(number: int) -> None:
        numbers.append(number)
        if number == 1:
            pytest.fail("one")
        assert number != 2

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases fail\nnumber=1\nnumber=2") as caught:
        check()
    assert numbers == [0, 1, 2, 3]
    assert [error.__notes__ for error in caught.value.exceptions] == [["number=1"], ["number=2"]]


def test_a_test_without_cases_is_an_error() -> None:
    with pytest.raises(AssertionError):
        for_each("number", [])
