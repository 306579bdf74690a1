"""The plots of a log's statistics, each on axes of its own.

`stats_pages` puts them into a picture or a page. Only these two files need matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs.stats import SIZE_CLASSES_PER_DOUBLING
from minibroker.pipeline.jobs.stats_report import SECOND_MS, Rate, Statistics, Traffic
from minibroker.quantities import binary_text, bytes_text, count_text, span_text, time_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot = Callable[["Axes", Statistics], None]

# Okabe and Ito's colours, which colour-blind people can distinguish. Grey is for the sum of the others.
COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#b8860b")
GREY: Final = "#9a9a9a"
OTHERS: Final = "others"
SERIES_MAX: Final = 7  # more lines cannot be distinguished
LABELS_MAX: Final = 24  # names fit below bars
BARS_MAX: Final = 100
ROWS_MAX: Final = 10  # of horizontal bars
ROWS_MIN: Final = 4  # there is room for so many, so that a single bar is not too thick
NAME_LENGTH_MAX: Final = 24
LABEL_CHARACTERS_MAX: Final = 80
LEGEND_COLUMNS: Final = 4
CODEC_COLORS: Final = {"none": GREY, "gzip": COLORS[1], "snappy": COLORS[2], "lz4": COLORS[0], "zstd": COLORS[3]}
PARTS: Final = (("keys", COLORS[4]), ("values", COLORS[0]), ("overhead", COLORS[5]))


def plots_of(statistics: Statistics) -> list[Plot]:
    """Return the plots that have data."""
    plots: list[Plot] = []
    if any(time_of(rate.start_ms) for rate in statistics.rates):
        plots += [record_rates, byte_rates]
    if statistics.all.batches:
        plots += [partitions, sizes_of_batches]
    if any(row.compression_ratio is not None for row in statistics.tables.get("codec, format", ())):
        plots += [compression, parts_of_a_record]
    if any(row.by["producer"] != -1 for row in statistics.tables.get("producer", ())):
        plots.append(producers)
    if any(skew.keys for skew in statistics.keys or ()):
        plots.append(keys)
    return plots


def record_rates(axes: Axes, statistics: Statistics) -> None:
    """Draw records per second over time, with topics stacked."""
    _rates(axes, statistics, lambda rate: rate.records, count_text)
    axes.set(title="Records written", ylabel="records/s")


def byte_rates(axes: Axes, statistics: Statistics) -> None:
    """Draw stored bytes per second over time, with topics stacked."""
    _rates(axes, statistics, lambda rate: rate.bytes, bytes_text)
    axes.set(title="Bytes written, as stored", ylabel="bytes/s")


def _rates(axes: Axes, statistics: Statistics, value: Callable[[Rate], int], text: Callable[[float], str]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    starts, series = _series(statistics, value)
    times: list[Any] = [time_of(start) for start in starts]
    bottom = [0.0] * len(times)
    for name, heights in series.items():
        top = [low + height for low, height in zip(bottom, heights, strict=True)]
        color = _topic_colors(statistics).get(name, GREY)
        axes.fill_between(times, bottom, top, step="post", label=name, color=color, linewidth=0)
        bottom = top
    _legend(axes, len(series), max(bottom))
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    label = f"time (UTC), a value each {span_text(statistics.span_ms)}"
    if statistics.records_outside:
        label += f"; {count_text(statistics.records_outside)} records are outside"
    axes.set(xlim=(times[0], times[-1]), xlabel=label)
    axes.yaxis.set_major_formatter(lambda number, _: text(number))


def _series(statistics: Statistics, value: Callable[[Rate], int]) -> tuple[list[int], dict[str, list[float]]]:
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
            series[name][(rate.start_ms - first) // span_ms] += value(rate) * SECOND_MS / span_ms
    return starts, series


def partitions(axes: Axes, statistics: Statistics) -> None:
    """Draw the bytes of each partition in the colour of its topic; of very many, only the largest."""
    rows = statistics.tables["topic, partition"]
    shown = sorted(
        sorted(rows, key=lambda row: -row.bytes)[:BARS_MAX],
        key=lambda row: (str(row.by["topic"]), row.by["partition"]),
    )
    colors = _topic_colors(statistics)
    topics = {str(row.by["topic"]) for row in shown}
    heights = [row.bytes for row in shown]
    axes.bar(
        range(len(shown)),
        heights,
        color=[colors.get(str(row.by["topic"]), GREY) for row in shown],
        width=0.8 if len(shown) > 4 else 0.5,
    )
    margin = max(0.6, (4 - len(shown)) / 2)
    axes.set_xlim(-margin, len(shown) - 1 + margin)
    _name_partitions(axes, shown, topics)
    if len(topics) > 1:
        names = {topic: color for topic, color in colors.items() if topic in topics}
        _legend_of(axes, names | ({OTHERS: GREY} if topics - colors.keys() else {}), max(heights))
    of_all = "" if len(shown) == len(rows) else f", the largest {len(shown)} of {len(rows)}"
    axes.set(title=f"Size of the partitions{of_all}", ylabel="bytes, as stored")
    axes.yaxis.set_major_formatter(lambda number, _: bytes_text(number))


def _name_partitions(axes: Axes, shown: Sequence[Traffic], topics: set[str]) -> None:
    """Write a name below each bar. If there are too many, write some numbers, or rely on the legend's colours."""
    from matplotlib.ticker import MaxNLocator

    if len(topics) > 1 and len(shown) > LABELS_MAX:
        axes.set_xticks([])
        axes.set_xlabel("partitions, topic by topic")
    elif len(topics) > 1:
        names = [f"{row.by['topic']}-{row.by['partition']}" for row in shown]
        short = [name if len(name) <= NAME_LENGTH_MAX else f"…{name[1 - NAME_LENGTH_MAX :]}" for name in names]
        turned = len(shown) * max(map(len, short)) > LABEL_CHARACTERS_MAX
        axes.set_xticks(range(len(shown)), short, rotation=45 if turned else 0, ha="right" if turned else "center")
        axes.set_xlabel("partition")
    else:
        if len(shown) <= LABELS_MAX:
            axes.set_xticks(range(len(shown)), [str(row.by["partition"]) for row in shown])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
            axes.xaxis.set_major_formatter(
                lambda place, _: str(shown[int(place)].by["partition"]) if 0 <= place < len(shown) else ""
            )
        axes.set_xlabel(f"partition of {', '.join(topics)}")


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
    _legend(axes, len(codecs), max(bottoms.values(), default=0))
    axes.set(title="Sizes of the batches", xlabel="size of a batch, as stored", ylabel="batches")


def compression(axes: Axes, statistics: Statistics) -> None:
    """Draw the stored and the uncompressed bytes of each codec and format."""
    rows = _measure_traffic(statistics)
    places = range(len(rows))
    stored, uncompressed = [row.bytes for row in rows], [row.uncompressed_bytes or 0 for row in rows]
    axes.barh([place - 0.2 for place in places], uncompressed, height=0.38, color=GREY, label="uncompressed")
    axes.barh([place + 0.2 for place in places], stored, height=0.38, color=COLORS[0], label="stored")
    longest = max((*stored, *uncompressed, 1))
    for place, row in zip(places, rows, strict=True):
        axes.text(
            max(row.bytes, row.uncompressed_bytes or 0) + longest * 0.01,
            place,
            f"{row.compression_ratio:.2f} x",
            va="center",
        )
    _finish_codecs(axes, statistics, "Compression")
    axes.set(xlabel="bytes", xlim=(0, longest * 1.15))


def parts_of_a_record(axes: Axes, statistics: Statistics) -> None:
    """Draw the average uncompressed size of a record: its key, its value, and the overhead."""
    rows = _measure_traffic(statistics)
    places = range(len(rows))
    lefts = [0.0] * len(rows)
    for name, color in PARTS:
        widths = [_part(row, name) for row in rows]
        axes.barh(places, widths, left=lefts, height=0.6, color=color, label=name)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    longest = max((*lefts, 1.0))
    for place, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        axes.text(left + longest * 0.01, place, f"overhead {bytes_text(row.overhead_per_record or 0)}", va="center")
    _finish_codecs(axes, statistics, "What a record consists of, uncompressed")
    axes.set(xlabel="bytes a record, on average", xlim=(0, longest * 1.3))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write a name beside each bar, from the top down, and leave room for a legend."""
    axes.set_yticks(range(len(names)), names)
    margin = max(0.5, (ROWS_MIN - len(names)) / 2)
    axes.set_ylim(len(names) - 1 + margin, -max(margin, 0.5 + 0.1 * len(names)))
    axes.grid(axis="y", visible=False)


def _part(row: Traffic, name: str) -> float:
    size = {"keys": row.key_bytes, "values": row.value_bytes}.get(name)
    return (row.overhead_per_record or 0.0) if name == "overhead" else (size or 0) / max(row.records, 1)


def _measure_traffic(statistics: Statistics) -> list[Traffic]:
    rows = [row for row in statistics.tables["codec, format"] if row.compression_ratio is not None]
    return sorted(rows, key=lambda row: -row.bytes)[:ROWS_MAX]


def _codec_and_format(row: Traffic) -> str:
    return f"{row.by['codec']}, format {row.by['format']}"


def _finish_codecs(axes: Axes, statistics: Statistics, title: str) -> None:
    """Name the rows of the measured codecs. The title says what is a sample, and which codecs are not drawn.

    None of the batches of these is in the sample, or there are too many.
    """
    rows = _measure_traffic(statistics)
    _name_rows(axes, [_codec_and_format(row) for row in rows])
    axes.xaxis.set_major_formatter(lambda number, _: bytes_text(number))
    axes.legend(**_legend_style(len(axes.get_legend_handles_labels()[0]), True))
    estimated = "" if all(row.is_measured_wholly for row in rows) else " (from a sample)"
    left_out = [_codec_and_format(row) for row in statistics.tables["codec, format"] if row not in rows]
    without = f"; without {' and '.join(left_out)}" if left_out else ""
    axes.set_title(f"{title}{estimated}{without}")


def producers(axes: Axes, statistics: Statistics) -> None:
    """Draw the records of the producers with the most."""
    rows = sorted(statistics.tables["producer"], key=lambda row: -row.records)[:ROWS_MAX]
    left_out = len(statistics.tables["producer"]) - len(rows) + statistics.left_out.get("producer", 0)
    axes.barh(range(len(rows)), [row.records for row in rows], height=0.6, color=COLORS[2])
    names = ["without an id" if row.by["producer"] == -1 else str(row.by["producer"]) for row in rows]
    _name_rows(axes, names)
    axes.xaxis.set_major_formatter(lambda number, _: count_text(number))
    title = "Producers" + (f", {left_out} smaller ones left out" if left_out else "")
    axes.set(title=title, xlabel="records", ylabel="producer id")


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


def _legend(axes: Axes, count: int, highest: float | None = None) -> None:
    """Draw the legend, above the plot if that is known to reach up to `highest`."""
    if count > 1:
        axes.legend(**_legend_style(count, highest is not None))
    _leave_room(axes, count, highest)


def _legend_of(axes: Axes, colors: dict[str, str], highest: float) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=name) for name, color in colors.items()]
    axes.legend(handles=handles, **_legend_style(len(colors), True))
    _leave_room(axes, len(colors), highest)


def _legend_style(count: int, above: bool) -> dict[str, Any]:
    columns = LEGEND_COLUMNS if above else 1
    return {
        "loc": "upper left" if above else "best",
        "frameon": False,
        "fontsize": "small",
        "ncols": min(count, columns),
    }


def _leave_room(axes: Axes, count: int, highest: float | None) -> None:
    if highest is not None:
        lines = -(-count // LEGEND_COLUMNS) if count > 1 else 0
        axes.set_ylim(0, max(highest, 1e-9) * (1.05 + 0.09 * lines))
