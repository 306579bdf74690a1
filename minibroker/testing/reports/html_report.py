"""`pytest --kafka-report`: a page of its own with the topics, groups and frames of the brokers of each failed test.

The process of each test makes a section; the one that was started, which pytest-xdist may have split, writes the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

from minibroker.protocol.explaining.explained_page import HEAD, SCRIPT, STYLE, format_hex_beside_tree
from minibroker.protocol.legible import escape_unprintable
from minibroker.testing.reports.failure_report import collect_state
from minibroker.testing.seen.explained_requests import explain_exchanges
from minibroker.testing.seen.log_reading import Record, iterate_records

if TYPE_CHECKING:
    import pytest

    from minibroker.protocol.explaining.parts import Explanation
    from minibroker.testing.broker import Broker
    from minibroker.testing.seen.exchange import Exchange

SHOWN_FRAMES: Final = 100  # requests of a broker, the newest
SHOWN_RECORDS: Final = 10  # of a partition, the newest
SHOWN_PARTITIONS: Final = 50
SECTION_CHARACTERS: Final = 4_000_000  # older frames are left out of a section that is longer
FRAME_CHARACTERS: Final = 1_000_000
FAILURE_CHARACTERS: Final = 20_000

_STYLE: Final = """
section, header { padding: 0 1.5rem 1rem; } header h1 { margin-left: 0; } header ul { padding: 0; border: 0; }
section { border-top: 1px solid var(--line); }
h2 { font-size: 1.1rem; margin: 1rem 0 .5rem; } h3 { font-size: .95rem; margin: 1rem 0 .3rem; }
pre.failure { overflow: auto; max-height: 20rem; padding: .6rem; border: 1px solid var(--line); font-size: 12px; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
th { color: var(--soft); font-weight: normal; } td { font-family: ui-monospace, monospace; font-size: 12px; }
summary { cursor: pointer; font-family: ui-monospace, monospace; font-size: 12px; padding: .15rem 0; }
summary:target, details:target > summary { background: var(--lit); }
a { color: inherit; }
"""


def make_anchor(test: str, phase: str) -> str:
    """Return the id of the section of a test's failure in a phase: "setup", "call" or "teardown"."""
    return f"t-{crc32(f'{test} {phase}'.encode()):08x}"


def format_section(test: str, when: str, failure: str, brokers: Iterable[tuple[Broker, int]]) -> str:
    """Return the section of a failed test as HTML.

    `failure` is pytest's text; of each broker's requests the first ones, which came before the test, are left out.
    """
    parts = [f'<section id="{make_anchor(test, when)}"><h2>{escape(test)} ({escape(when)})</h2>']
    parts.append(f'<pre class="failure">{_escape_text(failure[-FAILURE_CHARACTERS:])}</pre>')
    for broker, before in brokers:
        parts += _format_broker_section(broker, before, make_anchor(test, when))
    return "".join([*parts, "</section>\n"])


class ReportPage:
    """A plugin of pytest that gathers the sections, which are an attribute of tests' reports, and writes the page."""

    def __init__(self, path: Path, attribute: str) -> None:
        self._path = path
        self._attribute = attribute
        self._sections: list[str] = []
        self._links: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the section of a test that failed."""
        if (made := getattr(report, self._attribute, None)) is not None:
            self._sections.append(made)
            name = f"{escape(report.nodeid)} ({report.when})"
            self._links.append(f'<li><a href="#{make_anchor(report.nodeid, report.when)}">{name}</a></li>')

    def pytest_sessionfinish(self) -> None:
        """Write the page. Raises OSError."""
        said = f"<nav><ul>{''.join(self._links)}</ul></nav>" if self._links else "<p>No test with a broker failed.</p>"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("w", encoding="utf-8") as file:
            file.write(HEAD.format(title="minibroker: failed tests", style=STYLE + _STYLE))
            file.write(f"<header><h1>Failed tests</h1>{said}</header>\n")
            file.write(f"<main>\n{''.join(self._sections)}</main>\n{SCRIPT}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the page is."""
        terminalreporter.write_sep("-", f"Kafka report: {self._path}")


def _format_broker_section(broker: Broker, before: int, prefix: str) -> Iterator[str]:
    """Yield the HTML of a broker's state and of its requests after the first `before`."""
    where = broker.bootstrap_servers if broker.is_running else "down"
    yield f"<h3>Broker ({escape(where)})</h3>"
    if broker.is_running:
        yield from broker.call_on_loop(lambda: list(_format_broker_state(broker)))
    exchanges = broker.call_on_loop(
        lambda: broker.journal.list_exchanges(where=lambda exchange: exchange.number > before)
    )
    yield "<h3>Frames</h3>"
    shown = list(_format_frames(exchanges[-SHOWN_FRAMES:], prefix))
    if len(shown) < len(exchanges):
        yield f"<p>{len(exchanges) - len(shown)} older requests are left out.</p>"
    yield from shown


def _format_broker_state(broker: Broker) -> Iterator[str]:
    """Yield the HTML of tables of topics and groups."""
    partitions = [
        each
        for topic in broker.running.cluster.image.topics.values()
        if not topic.internal
        for each in topic.partitions
        if each.has_local_log
    ]
    rows = []
    for partition in partitions[:SHOWN_PARTITIONS]:
        end = partition.log.log_end_offset
        newest = islice(
            iterate_records(partition, max(partition.log.log_start_offset, end - SHOWN_RECORDS)), SHOWN_RECORDS
        )
        rows.append(
            [f"{partition.topic.name}-{partition.index}", partition.log.log_start_offset, end, _format_records(newest)]
        )
    yield "<h3>Topics</h3>" + _format_table(("partition", "start", "end", "newest records"), rows)
    if len(partitions) > SHOWN_PARTITIONS:
        yield f"<p>{len(partitions) - SHOWN_PARTITIONS} more partitions</p>"
    groups = collect_state(broker)["groups"]
    assert isinstance(groups, dict)
    rows_of_groups = [
        [name, *(each[key] for key in ("type", "state", "members", "committed"))] for name, each in groups.items()
    ]
    if rows_of_groups:
        yield "<h3>Groups</h3>" + _format_table(("group", "type", "state", "members", "committed"), rows_of_groups)


def _format_records(records: Iterable[Record]) -> str:
    return "\n".join(map(str, records))


def _format_table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_escape_text(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _format_frames(exchanges: list[Exchange], prefix: str) -> list[str]:
    """Return the HTML of requests with their answers, the newest ones as far as they fit."""
    items: dict[int, list[Explanation]] = {}
    for item in explain_exchanges(exchanges):
        items.setdefault(int(item.heading[1:].split()[0]), []).append(item)
    sections: list[str] = []
    left = SECTION_CHARACTERS
    for exchange in reversed(exchanges):
        made = "".join(format_hex_beside_tree(item) for item in items[exchange.number])
        if len(made) > FRAME_CHARACTERS:
            made = f"<p>Explained, this takes {len(made):,} characters, which are left out.</p>"
        left -= len(made)
        if left < 0:
            break
        name = f"{prefix}-{exchange.number}"
        sections.append(f'<details id="{name}"><summary>{_escape_text(str(exchange))}</summary>{made}</details>\n')
    return sections[::-1]


def _escape_text(text: str) -> str:
    """Return text for the page: line breaks stay, other control characters are escaped."""
    return "<br>".join(escape(escape_unprintable(line)) for line in text.splitlines())
