"""The plots of a log's statistics as a picture: rates, the sizes of batches, and how records spread over keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs.stats import SIZE_CLASSES_PER_DOUBLING
from minibroker.pipeline.jobs.stats_report import SECOND_MS, Statistics
from minibroker.pipeline.jobs.stats_tables import summary
from minibroker.quantities import binary_text, count_text, span_text, time_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot = Callable[["Axes", Statistics], None]

# Okabe and Ito's colours, which colour-blind people can distinguish. Grey is for the sum of the others.
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#b8860b")
GREY: Final = "#9a9a9a"
OTHERS: Final = "others"
SERIES_MAX: Final = 7  # more lines cannot be distinguished
LEGEND_COLUMNS: Final = 4
CODEC_COLORS: Final = {"none": GREY, "gzip": COLORS[1], "snappy": COLORS[2], "lz4": COLORS[0], "zstd": COLORS[3]}
PLOT_SIZE_INCHES: Final = (7.6, 4.2)
DPI: Final = 110
STYLE: Final[Any] = {  # Any: matplotlib types each of its 300 settings by name
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "font.size": 9,
}


def write_picture(statistics: Statistics, path: Path) -> None:
    """Write the plots one below the other, as PNG. Raises `OSError`, and `ImportError` without matplotlib."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    plots = plots_of(statistics)
    width, height = PLOT_SIZE_INCHES
    with rc_context(STYLE):
        lines = [statistics.source, *summary(statistics)]
        size = width, max(1, len(plots)) * height + len(lines) * 0.25
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        figure.suptitle("\n".join(lines), ha="left", x=0.01, fontsize=9)
        for place, plot in enumerate(plots, 1):
            axes = figure.add_subplot(len(plots), 1, place)
            plot(axes, statistics)
            for label in (axes.xaxis, axes.yaxis):
                label.set_tick_params(length=0)
        figure.savefig(path, format="png")


def plots_of(statistics: Statistics) -> list[Plot]:
    """Return the plots that have data."""
    plots: list[Plot] = []
    if any(time_of(rate.start_ms) for rate in statistics.rates):
        plots.append(record_rates)
    if statistics.all.batches:
        plots.append(sizes_of_batches)
    if any(skew.keys for skew in statistics.keys or ()):
        plots.append(keys)
    return plots


def record_rates(axes: Axes, statistics: Statistics) -> None:
    """Draw records per second over time, with topics stacked."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    starts, series = _series(statistics)
    times: list[Any] = [time_of(start) for start in starts]
    bottom = [0.0] * len(times)
    for name, heights in series.items():
        top = [low + height for low, height in zip(bottom, heights, strict=True)]
        color = _topic_colors(statistics).get(name, GREY)
        axes.fill_between(times, bottom, top, step="post", label=name, color=color, linewidth=0)
        bottom = top
    _legend_above(axes, len(series), max(bottom))
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    label = f"time (UTC), a value each {span_text(statistics.span_ms)}"
    if statistics.records_outside:
        label += f"; {count_text(statistics.records_outside)} records are outside"
    axes.set(xlim=(times[0], times[-1]), xlabel=label)
    axes.yaxis.set_major_formatter(lambda number, _: count_text(number))
    axes.set(title="Records written", ylabel="records/s")


def _series(statistics: Statistics) -> tuple[list[int], dict[str, list[float]]]:
    """Return the starts of the spans (the last one is empty), and each topic's values per second."""
    span_ms, rates = statistics.span_ms, [rate for rate in statistics.rates if time_of(rate.start_ms)]
    first, last = min(rate.start_ms for rate in rates), max(rate.start_ms for rate in rates)
    starts = list(range(first, last + 2 * span_ms, span_ms))
    named = _topic_colors(statistics)
    series: dict[str, list[float]] = {}
    for name in [*named, OTHERS]:
        of_name = [rate for rate in rates if (rate.topic if rate.topic in named else OTHERS) == name]
        if of_name:
            series[name] = [0.0] * len(starts)
        for rate in of_name:
            series[name][(rate.start_ms - first) // span_ms] += rate.records * SECOND_MS / span_ms
    return starts, series


def sizes_of_batches(axes: Axes, statistics: Statistics) -> None:
    """Draw how many batches have which size, by codec."""
    width = 2 ** (1 / SIZE_CLASSES_PER_DOUBLING)
    bottoms: dict[int, int] = {}
    codecs = sorted({each.codec for each in statistics.sizes}, key=lambda codec: [*CODEC_COLORS, codec].index(codec))
    for codec in codecs:
        rows = [each for each in statistics.sizes if each.codec == codec]
        axes.bar(
            [each.least_bytes for each in rows],
            [each.batches for each in rows],
            width=[each.least_bytes * (width - 1) for each in rows],
            bottom=[bottoms.get(each.least_bytes, 0) for each in rows],
            align="edge",
            label=codec,
            color=CODEC_COLORS.get(codec, COLORS[5]),
            edgecolor="white",
            linewidth=0.4,
        )
        for each in rows:
            bottoms[each.least_bytes] = bottoms.get(each.least_bytes, 0) + each.batches
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda number, _: binary_text(number))
    axes.yaxis.set_major_formatter(lambda number, _: count_text(number))
    _legend_above(axes, len(codecs), max(bottoms.values(), default=0))
    axes.set(title="Sizes of the batches", xlabel="size of a batch, as stored", ylabel="batches")


def keys(axes: Axes, statistics: Statistics) -> None:
    """Draw the share of the records that the most frequent keys have. Far from the diagonal means uneven."""
    skews = sorted((skew for skew in statistics.keys or () if skew.keys), key=lambda skew: -skew.records)[:SERIES_MAX]
    colors = _topic_colors(statistics)
    for skew in skews:
        shares = [100 * share for share, _ in skew.curve], [100 * share for _, share in skew.curve]
        label = f"{skew.topic}: {count_text(skew.keys)} keys, Gini {skew.gini:.2f}"
        axes.plot(*shares, color=colors.get(skew.topic, GREY), label=label, linewidth=2)
    axes.plot([0, 100], [0, 100], color=GREY, linestyle="--", linewidth=1, label="all keys alike")
    axes.xaxis.set_major_formatter("{x:.0f} %")
    axes.yaxis.set_major_formatter("{x:.0f} %")
    axes.legend(loc="lower right", frameon=False, fontsize="small")
    axes.set(xlim=(0, 100), xlabel="keys, the most frequent first")
    axes.set(ylim=(0, 101), ylabel="records of the topic with a key", title="How records spread over keys")


def _topic_colors(statistics: Statistics) -> dict[str, str]:
    """Return the topics with the most bytes, each with its colour in all plots."""
    sizes: dict[str, int] = {}
    for row in statistics.tables["topic, partition"]:
        sizes[str(row.by["topic"])] = sizes.get(str(row.by["topic"]), 0) + row.bytes
    return dict(zip(sorted(sizes, key=lambda name: -sizes[name])[:SERIES_MAX], COLORS, strict=False))


def _legend_above(axes: Axes, count: int, highest: float) -> None:
    """Draw a legend of several series above a plot that reaches up to `highest`, and leave room for it."""
    lines = -(-count // LEGEND_COLUMNS) if count > 1 else 0
    if lines:
        axes.legend(loc="upper left", frameon=False, fontsize="small", ncols=min(count, LEGEND_COLUMNS))
    axes.set_ylim(0, max(highest, 1e-9) * (1.05 + 0.09 * lines))
