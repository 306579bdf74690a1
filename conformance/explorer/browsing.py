"""Pages of the explorer in Chromium, which say what they loaded, what they logged and what is not accessible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from conformance import builds

CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 30_000
SIZE = {"width": 1440, "height": 860}
AXE = """() => axe.run(document, { resultTypes: ['violations'], preload: false,
    ...(matchMedia('(prefers-color-scheme: dark)').matches && { runOnly: ['color-contrast'] }) })"""
# A page that root starts has no sandbox; the tests open only the explorer in it.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Explorer:
    """A page that shows an explorer. `faults` are its errors, dialogs, and requests to anybody else."""

    def __init__(self, browser: Browser, url: str, scheme: Any = "light") -> None:
        self._url = url
        self.faults: list[str] = []
        self.page: Page = browser.new_page(viewport=SIZE, color_scheme=scheme)
        self.page.set_default_timeout(WAIT_MS)
        own = urlsplit(url).netloc
        self.page.on("request", lambda each: None if urlsplit(each.url).netloc == own else self.faults.append(each.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, place: str = "") -> Page:
        """Go to a place, such as #/frames, and wait until it is there."""
        self.page.goto(self._url + place)
        self.page.locator("main#view").wait_for()
        return self.page

    def close(self) -> None:
        """Close it, and fail if anything was wrong with it."""
        self.page.close()
        assert not self.faults, self.faults


def inaccessible(page: Page) -> list[str]:
    """Return what axe finds wrong with the page as it is shown now; in the dark, with its colors."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(builds.axe().read_text())
    found = page.evaluate(AXE)
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
