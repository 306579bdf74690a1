"""`pytest --kafka-report`: a page for all failed tests, also of several processes; no name or value can harm it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.testing.test_plugin import run

pytest_plugins = "pytester"
HOSTILE = """
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\\x1b[31m\\u202e"

def test_fails(kafka):
    kafka.produce("orders", HOSTILE, key=HOSTILE)
    produce(kafka, HOSTILE, topic="orders")
    assert HOSTILE == ""

def test_kills(kafka):
    produce(kafka, "a")
    kafka.kill()
    assert 0

def test_passes(kafka):
    produce(kafka, "other", topic="unseen")
"""


class Page(HTMLParser):
    """The ids, the links, the tags and the texts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("more", [(), ("-n", "2")])
def test_a_failed_test_links_to_its_section_in_the_html_report(
    pytester: pytest.Pytester, more: tuple[str, ...]
) -> None:
    result = run(pytester, HOSTILE, "--kafka-report=out/report.html", *more, plugins=("xdist",))
    result.assert_outcomes(passed=1, failed=2)
    page = Page(pytester.path / "out" / "report.html")
    sections = [link.removeprefix("#") for link in page.links]
    assert len(sections) == 2
    assert set(sections) <= set(page.ids)
    lines = ["what the last of them say:", "#* Produce * > (responses *", "each byte of them: out/report.html#t-*"]
    result.stdout.fnmatch_lines([*lines, "*Kafka report: out/report.html*"])
    for each in sections:
        assert f"each byte of them: out/report.html#{each}" in result.stdout.str()
        assert any(name.startswith(f"{each}-") for name in page.ids)  # frames
    assert any("orders-0 offset 1" in text for text in page.texts)
    assert "Broker (down)" in page.texts
    assert not any("unseen" in text for text in page.texts)
    check_that_it_is_harmless(page, (pytester.path / "out" / "report.html").read_text())


def check_that_it_is_harmless(page: Page, text: str) -> None:
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not page.names & {"src", "onerror"}
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert any("<script>alert(1)</script>" in each for each in page.texts)


def test_the_html_report_leaves_out_failures_of_tests_without_a_broker(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_passes(kafka): pass\ndef test_fails(): assert 0", "--kafka-report=report.html")
    result.assert_outcomes(passed=1, failed=1)
    assert "No test with a broker failed." in (pytester.path / "report.html").read_text()
