"""The settings as help, and in the site's page of settings, are those of the table."""

from __future__ import annotations

import re

from docs.pages.settings import markdown
from minibroker.broker.configs.settings_table import SETTINGS
from minibroker.cli.settings_help import HEAD, iterate_setting_rows
from tests.cli.conftest import Run


def test_the_settings_page_has_a_row_for_each_setting() -> None:
    _, *table = markdown().split(f"\n| {' | '.join(HEAD)} |\n")[1].splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    assert [tuple(each[:2]) for each in cells] == [
        tuple(name and f"`{name}`" for name in row[:2]) for row in iterate_setting_rows()
    ]
    assert [each for each in cells if len(each) != len(HEAD) or not each[-1]] == []


def test_each_public_setting_is_explained() -> None:
    named = {cell for row in iterate_setting_rows() for cell in row[:2] if cell}
    public = [row for row in SETTINGS if not row.internal]
    assert {name for row in public for name in (row.name, row.topic) if name} == named


def test_a_default_that_differs_from_kafkas_is_marked() -> None:
    defaults = {row[0]: row[3] for row in iterate_setting_rows()}
    assert defaults["listeners"] == "PLAINTEXT://127.0.0.1:9092 (Kafka: PLAINTEXT://:9092)"
    assert defaults["log.dir"] == "minibroker-data (Kafka: /tmp/kafka-logs)"
    assert defaults["log.retention.ms"] == "log.retention.minutes or log.retention.hours"


def test_serve_lists_settings_without_serving(run: Run) -> None:
    result = run("serve", "--help-settings")
    assert result.exit_code == 0
    expected = (
        "log.segment.bytes (of a topic: segment.bytes): int, default 1073741824, from 1048576, changes while running\n"
        "    The largest size of a segment file; the append that would exceed it begins a new segment.\n"
    )
    assert expected in result.stdout
