"""The reports: a picture and a page with all plots, for a log of one partition as for one of many."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from minibroker.pipeline.jobs import stats_plots
from minibroker.pipeline.jobs.stats_pages import page, write_report
from minibroker.pipeline.jobs.stats_plots import plots_of
from tests.pipeline.jobs.made_up import START_MS, statistics, traffic

MANY = tuple(f"topic-number-{each}" for each in range(12))


@pytest.mark.parametrize(("topics", "partitions"), [(("orders",), 1), (("orders",), 60), (("a", "b"), 3), (MANY, 10)])
def test_every_plot_has_a_title_and_axis_labels(topics: Sequence[str], partitions: int) -> None:
    found = statistics(topics, partitions)
    for plot in plots_of(found):
        axes = Figure().subplots()
        plot(axes, found)
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes.get_yticklabels()
        assert axes.has_data()


def test_only_available_data_is_plotted() -> None:
    found = statistics(keys=False)
    found.rates, found.tables["producer"] = [], [traffic(producer=-1)]
    names = [plot.__name__ for plot in plots_of(found)]
    assert names == ["partitions", "sizes_of_batches", "compression", "parts_of_a_record"]
    found.rates = [stats_plots.Rate("orders", 2**62, 1, 1)]  # a time that no calendar has
    assert len(plots_of(found)) == 4


def test_producers_are_in_the_order_of_their_bars() -> None:
    found, axes = statistics(), Figure().subplots()
    found.tables["producer"] = [traffic(producer=each, records=each) for each in (5, 70, 20)]
    stats_plots.producers(axes, found)
    assert [bar.get_width() for bar in axes.patches] == [70, 20, 5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["70", "20", "5"]


def test_a_codec_missed_by_the_sample_is_named() -> None:
    found, axes = statistics(), Figure().subplots()
    row = replace(found.tables["codec, format"][0], by={"codec": "snappy", "format": 1}, compression_ratio=None)
    found.tables["codec, format"].append(row)
    stats_plots.compression(axes, found)
    assert axes.get_title().endswith("; without snappy, format 1")


def test_rates_are_per_second() -> None:
    found, axes = statistics(), Figure().subplots()
    stats_plots.record_rates(axes, found)
    assert max(collection.get_datalim(axes.transData).y1 for collection in axes.collections) == 9
    assert found.rates[0].start_ms == START_MS


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    write_report(statistics(), tmp_path / "report.PNG")
    data = (tmp_path / "report.PNG").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")


def test_a_page_is_self_contained_and_escapes_keys(tmp_path: Path) -> None:
    write_report(statistics(("a", "b"), 2), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "&lt;hot&gt; &amp; €" in text and "<hot>" not in text
    assert not re.search(r"<(script|link|img|iframe)\b|url\(http", text)
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == len(plots_of(statistics()))
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert text == page(statistics(("a", "b"), 2)), "the same statistics make the same page"


def test_plots_are_omitted_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError):
        page(statistics())
