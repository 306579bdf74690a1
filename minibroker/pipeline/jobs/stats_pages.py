"""The statistics as a picture (PNG) or as a self-contained page (HTML).

`stats_plots` draws the plots, `stats_tables` makes the tables.
"""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs.stats_plots import Plot, plots_of
from minibroker.pipeline.jobs.stats_report import Statistics
from minibroker.pipeline.jobs.stats_tables import Table, summary, tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    "svg.hashsalt": "minibroker",  # the same statistics give the same page
    "svg.fonttype": "none",
}
CSS: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1500px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.1em; margin: 2em 0 .5em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1em; }
.plots svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9em; }
th, td { padding: .25em .5em; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th { border-bottom: 2px solid #999; } th.text, td.text { text-align: left; }
p.note { color: #666; }
"""


def write_report(statistics: Statistics, path: Path) -> None:
    """Write the report as a picture or as a page, by the suffix of the file's name.

    Raises `OSError`, and `ImportError` without matplotlib.
    """
    if path.suffix.lower() == ".png":
        path.write_bytes(picture(statistics))
    else:
        path.write_text(page(statistics), encoding="utf-8")


def picture(statistics: Statistics) -> bytes:
    """Return all plots in one PNG, two in each row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    plots = plots_of(statistics)
    rows = max(1, -(-len(plots) // 2))
    width, height = PLOT_SIZE_INCHES
    with rc_context(STYLE):
        lines = [statistics.source, *summary(statistics)]
        figure = Figure(figsize=(2 * width, rows * height + len(lines) * 0.25), dpi=DPI, layout="constrained")
        figure.suptitle("\n".join(lines), ha="left", x=0.01, fontsize=11)
        grid = figure.subplots(rows, 2, squeeze=False)
        for index, axes in enumerate(grid.flat):
            _draw(axes, statistics, plots[index]) if index < len(plots) else axes.remove()
        return _render_figure(figure, "png")


def page(statistics: Statistics) -> str:
    """Return plots (as SVG) and tables as one HTML text."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = []
    with rc_context(STYLE):
        for plot in plots_of(statistics):
            figure = Figure(figsize=PLOT_SIZE_INCHES, layout="constrained")
            _draw(figure.subplots(), statistics, plot)
            svg = _render_figure(figure, "svg").decode()
            drawn.append(f"<div>{svg[svg.index('<svg') :]}</div>")
    notes = "".join(f'<p class="note">{escape(line)}.</p>' for line in summary(statistics))
    body = "".join(_html(table) for table in tables(statistics))
    title = escape(statistics.source)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{CSS}</style></head>\n"
        f'<body><h1>{title}</h1>{notes}<div class="plots">{"".join(drawn)}</div>\n{body}</body></html>\n'
    )


def _draw(axes: Axes, statistics: Statistics, plot: Plot) -> None:
    plot(axes, statistics)
    for label in (axes.xaxis, axes.yaxis):
        label.set_tick_params(length=0)


def _render_figure(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()


def _html(table: Table) -> str:
    kinds = ["" if column.is_number else ' class="text"' for column in table.columns]
    head = "".join(f"<th{kind}>{escape(column.name)}</th>" for kind, column in zip(kinds, table.columns, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<h2>{escape(table.title)}</h2><div class="wide"><table><tr>{head}</tr>\n{rows}</table></div>{note}\n'
