"""The site's page of metrics says of each metric what Prometheus's conventions ask for."""

from __future__ import annotations

import re

from docs.pages.metrics import markdown, rows


def test_the_metrics_page_has_a_row_for_each_metric() -> None:
    text = markdown()
    assert [row for row in rows() if f"| {' | '.join(row)} |\n" not in text] == []
    assert re.search(r"histograms end at [0-9., ]+ and [0-9]+ seconds", text)


def test_metric_names_follow_the_conventions_of_prometheus() -> None:
    for name, kind, labels, meaning in rows():
        assert re.fullmatch(r"`minibroker_[a-z]+(_[a-z]+)*`", name)
        assert name.endswith("_total`") == (kind == "counter")
        assert name.endswith("_seconds`") or kind != "histogram"
        assert meaning.endswith(".") and not set(labels.split(", ")) & {"le", "quantile"}
