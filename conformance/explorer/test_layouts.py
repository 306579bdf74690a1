"""Each view looks as it did: its parts are where they were, in wide and narrow windows, in light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from conformance.explorer.browsing import Explorer, chromium, inaccessible
from conformance.explorer.layouts import REFERENCE, SHOWN, WINDOWS, Filled, boxes, filled, moved, shown

REFERENCES: dict[str, Any] = json.loads(REFERENCE.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def given() -> Iterator[Filled]:
    with filled() as given:
        yield given


@pytest.mark.parametrize(("window", "scheme"), [("wide", "light"), ("wide", "dark"), ("narrow", "light")])
def test_each_view_has_its_recorded_layout(browser: Browser, given: Filled, window: str, scheme: str) -> None:
    explorer = Explorer(browser, given.broker.explorer_url, scheme)
    strange: dict[str, Any] = {}
    for place in SHOWN:
        page = shown(explorer, given, place, window)
        width = page.evaluate("() => document.documentElement.scrollWidth")
        wide = [f"it is {width} px wide"] if width > WINDOWS[window]["width"] else []
        found = [*moved(REFERENCES[f"{window} {place}"], boxes(page)), *wide, *inaccessible(page)]
        if found:
            strange[place] = found
    explorer.close()
    assert strange == {}


def test_moved_elements_of_a_recorded_layout_are_reported() -> None:
    before = {"nav": [[0, 44, 148, 860]], "main": [[148, 44, 1440, 860]]}
    assert moved(before, before) == []
    assert moved(before, {"nav": [[0, 44, 48, 860]]}) == [
        "main: 1 before, 0 now",
        "nav: [0, 44, 148, 860] before, [0, 44, 48, 860] now",
    ]
