"""The plots of statistics, of a log of one topic as of many."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from minibroker.pipeline.jobs import stats_plots
from minibroker.pipeline.jobs.stats_plots import plots_of, write_picture
from minibroker.pipeline.jobs.stats_report import Rate
from tests.pipeline.jobs.made_up import START_MS, statistics

MANY = tuple(f"topic-number-{each}" for each in range(12))


@pytest.mark.parametrize("topics", [("orders",), ("a", "b"), MANY])
def test_every_plot_has_a_title_and_axis_labels(topics: Sequence[str]) -> None:
    found = statistics(topics)
    for plot in plots_of(found):
        axes = Figure().subplots()
        plot(axes, found)
        assert axes.get_title()
        assert axes.get_xlabel() and axes.get_ylabel()
        assert axes.has_data()


def test_only_available_data_is_plotted() -> None:
    assert [plot.__name__ for plot in plots_of(statistics())] == ["record_rates", "sizes_of_batches", "keys"]
    found = statistics(keys=False)
    found.rates = []
    assert [plot.__name__ for plot in plots_of(found)] == ["sizes_of_batches"]
    found.rates = [Rate("orders", 2**62, 1, 1)]  # a time that no calendar has
    assert [plot.__name__ for plot in plots_of(found)] == ["sizes_of_batches"]


def test_rates_are_per_second() -> None:
    found, axes = statistics(), Figure().subplots()
    stats_plots.record_rates(axes, found)
    assert max(collection.get_datalim(axes.transData).y1 for collection in axes.collections) == 9
    assert found.rates[0].start_ms == START_MS


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    write_picture(statistics(), tmp_path / "plots.PNG")
    data = (tmp_path / "plots.PNG").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")


def test_plots_need_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError):
        write_picture(statistics(), tmp_path / "plots.png")
