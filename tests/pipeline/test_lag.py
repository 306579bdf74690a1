"""The lag of a streaming query, from Spark's progress."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.pipeline.lag import SourceLag, offsets_behind


def progress(*sources: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(json=json.dumps({"sources": sources}))


def test_each_source_has_its_lag() -> None:
    source = {
        "endOffset": {"orders": {"0": 10, "1": 25}},
        "latestOffset": {"orders": {"0": 30, "1": 25}, "visits": {"0": 4}},
    }
    (lag,) = offsets_behind(progress(source))
    assert lag == SourceLag(("orders", "visits"), 20, 0, 8.0, 24)
    assert lag.metrics() == {
        "avgOffsetsBehindLatest": "8.0", "maxOffsetsBehindLatest": "20", "minOffsetsBehindLatest": "0",
    }  # fmt: skip


@pytest.mark.parametrize(("average", "text"), [(700 / 3, "233.3"), (0.25, "0.3"), (1e16, "10000000000000000.0")])
def test_the_average_is_rounded_as_in_sparks_progress(average: float, text: str) -> None:
    assert SourceLag((), 0, 0, average, 0).metrics()["avgOffsetsBehindLatest"] == text


def test_offsets_may_be_strings_and_progress_a_mapping() -> None:
    sources = [{"endOffset": '{"a": {"0": 1}}', "latestOffset": '{"a": {"0": 3}}'}]
    assert offsets_behind({"sources": sources})[0].offsets_behind_latest == 2


def test_other_and_unstarted_sources_have_no_lag() -> None:
    assert offsets_behind(None) == []
    assert offsets_behind(progress({"endOffset": 5, "latestOffset": 7}, {"endOffset": "x", "latestOffset": "y"})) == []
    assert offsets_behind(progress({"endOffset": None, "latestOffset": None})) == []
