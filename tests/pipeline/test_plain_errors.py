"""Errors of ours come without the frames below; others keep them, and rows that came before are given."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from minibroker.pipeline.log_source import DataLoss, OptionError
from minibroker.pipeline.plain_errors import iterate_with_plain_errors, raise_plain_errors


def deep(error: Exception) -> int:
    try:
        raise KeyError("why")
    except KeyError:
        raise error  # noqa: B904 - what was being handled shall not be shown either


@raise_plain_errors
def called(error: Exception) -> int:
    return deep(error)


def rows(error: Exception) -> Iterator[int]:
    yield 1
    yield deep(error)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_our_own_errors_are_shown_without_a_traceback() -> None:
    with pytest.raises(OptionError) as caught:
        called(OptionError("no"))
    assert "deep" not in shown(caught.value) and "KeyError" not in shown(caught.value)


def test_errors_after_some_rows_are_shown_without_a_traceback() -> None:
    given = []
    with pytest.raises(DataLoss) as caught:
        for row in iterate_with_plain_errors(rows(DataLoss("gone"))):
            given.append(row)
    assert given == [1]
    assert "deep" not in shown(caught.value) and "KeyError" not in shown(caught.value)


def test_a_bug_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        called(ZeroDivisionError())
    assert "in deep" in shown(caught.value) and "KeyError" in shown(caught.value)
