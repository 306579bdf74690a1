"""Saved frames, files of a compacted topic and decoded records in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, expect

from conformance.explorer.browsing import WAIT_MS, Explorer, chromium, inaccessible
from minibroker.testing import Broker

HOSTILE = "<img src=x onerror=alert(1)>"
USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
LOG = "orders-0/00000000000000000000.log"
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(explorer=True, registry=True) as broker:
        broker.create_topic("orders", cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=1)
        for value in ("old", "new", "last"):
            broker.produce("orders", value, "x" * 600_000, key="k")
        broker.registry.register("users-value", USER)
        name = HOSTILE.encode()
        broker.produce("users", b"\0\0\0\0\1" + bytes([2 * len(name)]) + name)
        yield broker


@pytest.fixture
def explorer(browser: Browser, broker: Broker) -> Iterator[Explorer]:
    explorer = Explorer(browser, broker.explorer_url)
    yield explorer
    explorer.close()


def test_records_that_compaction_would_take_are_marked(explorer: Explorer) -> None:
    page = explorer.open(f"#/files/{LOG.replace('/', '%2F')}")
    expect(page.get_by_text("compaction would take 3 records")).to_be_visible()
    fields = page.get_by_role("listbox", name="Fields of the file")
    expect(fields.get_by_role("option").filter(has_text="compaction would take it").first).to_contain_text("record [0]")
    assert inaccessible(page) == []


def test_a_decoded_record_is_only_text(explorer: Explorer) -> None:
    page = explorer.open("#/topics/users/0/0")
    expect(page.locator("pre.contents").last).to_contain_text(f'"name": "{HOSTILE}"')
    expect(page.get_by_text("value by schema 1")).to_be_visible()
    assert page.locator("img:not([src='icon.svg'])").count() == 0


def test_saved_frames_are_shown_without_a_broker(browser: Browser, broker: Broker, tmp_path: Path) -> None:
    with Popen(["minibroker", "explore", str(_saved(broker, tmp_path))], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        explorer = Explorer(browser, process.stdout.readline().split(" is explored at ")[1].strip())
        page = explorer.open("#/frames")
        rows = page.get_by_role("listbox", name="Frames").get_by_role("option")
        rows.filter(has_text="Metadata").first.click()
        expect(page.get_by_role("listbox", name="Fields of the request")).to_contain_text("correlation_id")
        assert page.get_by_role("button", name="clear").count() == page.get_by_text("try it").count() == 0
        explorer.close()
        process.terminate()


def _saved(broker: Broker, directory: Path) -> Path:
    AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    broker.journal.save(directory / "frames")
    return directory / "frames"
