"""The explorer's lessons: a reader who does what they say, and answers what they ask, gets through all of them."""

from __future__ import annotations

from playwright.sync_api import expect

from conformance.explorer.browsing import WAIT_MS, Explorer, chromium
from conformance.explorer.walking import Reader, Server, frames_and_topics, walk_on
from minibroker.testing import Broker

expect.set_options(timeout=WAIT_MS)


def test_the_lessons_can_be_completed() -> None:
    with Broker(explorer=True) as broker, chromium() as browser:
        explorer = Explorer(browser, broker.explorer_url)
        reader = Reader(Server(broker), explorer.open())
        frames_and_topics(reader)
        begins_again(reader)
        walk_on(reader)
        explorer.close()


def begins_again(reader: Reader) -> None:
    """What was sent before does not count, also after the page was loaded anew; the topic is still there."""
    reader.page.get_by_role("button", name="begin this lesson again").click()
    expect(reader.page.locator("li.done")).to_have_count(1)
    reader.page.reload()
    expect(reader.page.locator("li.done")).to_have_count(1)
    reader.page.goto(f"{reader.source.url}#/lessons/versions")
    expect(reader.page.locator("li.done")).to_have_count(3)
    reader.sees("metadata", 1)
