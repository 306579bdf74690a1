"""What is measured and how it is shown: sections of cases, their samples, and the tables and JSON made of them.

How a case measures is the business of the files named after the sections; nothing here touches a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log10
from statistics import median
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from machine import Machine
from servers import Target

Sample = dict[str, float]
Measure = Callable[[Target], Sample]

WITHIN = 1.2  # "at the prototype's level within 20 %"


class Column(NamedTuple):
    """One figure of every case of a section; `title` names its unit."""

    key: str
    title: str
    higher_is_better: bool = False

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.higher_is_better else min(values)


class Case(NamedTuple):
    """One row: `measure` takes one sample; `targets` says what minibroker should reach, by column.

    Rows with a `size`, the smallest first, show how costs grow with it.
    """

    name: str
    measure: Measure
    targets: Mapping[str, float] = {}
    size: int | None = None


class Section(NamedTuple):
    """Rows with the same columns. `name` is what --only takes."""

    name: str
    title: str
    columns: tuple[Column, ...]
    cases: list[Case]


@dataclass
class Results:
    """Samples by (section, case, server); beside them what this machine cannot measure, and what failed."""

    samples: dict[tuple[str, str, str], list[Sample]] = field(default_factory=dict)
    left_out: dict[tuple[str, str, str], str] = field(default_factory=dict)  # the reason
    failed: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def values(self, section: Section, case: Case, server: str, column: Column) -> list[float]:
        """One figure of all samples of a row."""
        samples = self.samples.get((section.name, case.name, server), [])
        return [sample[column.key] for sample in samples if column.key in sample]


class Figure(NamedTuple):
    """One figure of a row over all its samples, and what it should be (None: nothing was said).

    `per_tenfold` is by what it is multiplied from the row before to this one, if that were ten times as large: 1 does
    not grow, 10 grows as the size does. None where there are no sizes, or no row before.
    """

    column: Column
    median: float
    best: float
    target: float | None
    per_tenfold: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the median is within 20 % of the target."""
        if self.target is None:
            return True
        if self.column.higher_is_better:
            return self.median * WITHIN >= self.target
        return self.median <= self.target * WITHIN


def figures(section: Section, case: Case, server: str, results: Results) -> list[Figure | None]:
    """A figure for every column of the section; None where the case does not measure it."""
    found: list[Figure | None] = []
    for column in section.columns:
        values = results.values(section, case, server, column)
        target = case.targets.get(column.key) if server == "minibroker" else None
        grown = _per_tenfold(section, case, server, column, results)
        found.append(Figure(column, median(values), column.best(values), target, grown) if values else None)
    return found


def _per_tenfold(section: Section, case: Case, server: str, column: Column, results: Results) -> float | None:
    index = section.cases.index(case)
    before = section.cases[index - 1]
    if index == 0 or case.size is None or before.size is None:
        return None
    smaller, larger = (results.values(section, each, server, column) for each in (before, case))
    if not smaller or not larger or median(smaller) <= 0 or median(larger) <= 0:
        return None
    return float((median(larger) / median(smaller)) ** (1 / log10(case.size / before.size)))


def quantity(value: float) -> str:
    """Three significant digits, as a person writes them."""
    if value >= 999_500:
        return f"{value / 1e6:.3g} M"
    if value >= 9_995:
        return f"{value / 1e3:.3g} k"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_tables(console: Console, sections: Sequence[Section], results: Results, machine: Machine) -> None:
    """One table a section, and a line on the machine."""
    for section in sections:
        console.print(_table(section, results))
        for line in [*_reasons("left out", section, results.left_out), *_reasons("failed", section, results.failed)]:
            console.print(line, markup=False)
    console.print(
        f"{machine.date}, commit {machine.commit}, {machine.cores} x {machine.processor}, {machine.memory_gib} GiB, "
        f"{machine.kernel}, CPython {machine.python}, load {machine.load_before:.2f} before and "
        f"{machine.load_after:.2f} after (the load of the benchmark is in it)"
    )


def _reasons(word: str, section: Section, reasons: Mapping[tuple[str, str, str], str]) -> list[str]:
    """A line for each reason, with all the rows of the section that it concerns."""
    cases: dict[str, list[str]] = {}
    for (name, case, server), reason in reasons.items():
        if name == section.name:
            cases.setdefault(f"{server}: {reason.splitlines()[-1]}", []).append(case.strip())
    return [f"  {word}: {', '.join(names)}: {reason}" for reason, names in cases.items()]


def _table(section: Section, results: Results) -> Table:
    table = Table(title=section.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    table.add_column("server", no_wrap=True)
    targeted = [any(column.key in case.targets for case in section.cases) for column in section.columns]
    for column, has_target in zip(section.columns, targeted, strict=True):
        table.add_column(column.title, justify="right", no_wrap=True)
        if has_target:
            table.add_column("target", justify="right", no_wrap=True, style="cyan")
    for case in section.cases:
        for (name, case_name, server), samples in results.samples.items():
            if (name, case_name) == (section.name, case.name):
                row = figures(section, case, server, results)
                table.add_row(case.name, server, *_cells(row, targeted, len(samples)))
    return table


def _cells(row: Sequence[Figure | None], targeted: Sequence[bool], count: int) -> list[str]:
    """Median (best), green or red where there is a target, which follows in a cell of its own.

    Where costs grow, the growth stands in place of the best.
    """
    cells = []
    for figure, has_target in zip(row, targeted, strict=True):
        text = target = ""
        if figure is not None:
            text = quantity(figure.median)
            if figure.per_tenfold is not None:
                text += f" (x {figure.per_tenfold:.2g})"
            elif count > 1:
                text += f" ({quantity(figure.best)})"
            if figure.target is not None:
                text = f"[{'green' if figure.reached else 'red'}]{text}[/]"
                target = quantity(figure.target)
        cells += [text, target] if has_target else [text]
    return cells


def as_json(sections: Sequence[Section], results: Results, machine: Machine) -> dict[str, Any]:
    """Everything: machine, samples, medians, bests, targets, and what has no figures and why."""
    cases = {(section.name, case.name): (section, case) for section in sections for case in section.cases}
    rows = []
    for (name, case_name, server), samples in results.samples.items():
        measured = {
            figure.column.key: {
                "unit": figure.column.title,
                "median": figure.median,
                "best": figure.best,
                "target": figure.target,
                "per_tenfold": figure.per_tenfold,
            }
            for figure in figures(*cases[name, case_name], server, results)
            if figure is not None
        }
        rows.append({"section": name, "case": case_name, "server": server, "figures": measured, "samples": samples})
    without_figures = {
        word: [
            {"section": name, "case": case_name, "server": server, "reason": reason}
            for (name, case_name, server), reason in reasons.items()
        ]
        for word, reasons in (("left_out", results.left_out), ("failed", results.failed))
    }
    return {"machine": machine._asdict(), "rows": rows, **without_figures}
