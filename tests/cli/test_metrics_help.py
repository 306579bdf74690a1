"""docs/metrics.md is up to date, and says of each metric what Prometheus's conventions ask for."""

from __future__ import annotations

import re
from pathlib import Path

from minibroker.cli.metrics_help import markdown, rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_document_is_made_from_the_rows() -> None:
    remedy = "make it anew: python3 -m minibroker.cli.metrics_help > docs/metrics.md"
    assert DOCUMENT.read_text() == markdown(), remedy


def test_names_follow_prometheus_conventions() -> None:
    for name, kind, labels, meaning in rows():
        assert re.fullmatch(r"`minibroker_[a-z]+(_[a-z]+)*`", name)
        assert name.endswith("_total`") == (kind == "counter")
        assert name.endswith("_seconds`") or kind != "histogram"
        assert meaning.endswith(".") and not set(labels.split(", ")) & {"le", "quantile"}
