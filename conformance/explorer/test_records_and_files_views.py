"""Saved frames, files of a compacted topic and decoded records in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, expect

from conformance.explorer.browsing import WAIT_MS, Explorer, chromium, inaccessible
from minibroker.testing import Broker

HOSTILE = "<img src=x onerror=alert(1)>"
LARGE = b"a" * (10 << 20)
USER: dict[str, Any] = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
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
        broker.registry.register("countries", {"type": "enum", "name": "Country", "symbols": ["AT", "CH"]})
        home = {"name": "home", "type": ["null", "Country"], "default": None, "doc": HOSTILE}
        newer = USER | {"fields": [*USER["fields"], home]}
        broker.registry.register("users-value", newer, references=[("Country", "countries", 1)])
        broker.create_topic("large", max_message_bytes=20 << 20)
        broker.produce("large", LARGE)
        name = HOSTILE.encode()
        broker.produce("users", b"\0\0\0\0\1" + bytes([2 * len(name)]) + name)
        yield broker


@pytest.fixture
def explorer(browser: Browser, broker: Broker) -> Iterator[Explorer]:
    explorer = Explorer(browser, broker.explorer_url)
    yield explorer
    explorer.close()


def test_records_that_compaction_would_remove_are_marked(explorer: Explorer) -> None:
    page = explorer.open(f"#/files/{LOG.replace('/', '%2F')}")
    expect(page.get_by_text("compaction would take 3 records")).to_be_visible()
    fields = page.get_by_role("listbox", name="Fields of the file")
    expect(fields.get_by_role("option").filter(has_text="compaction would take it").first).to_contain_text("record [0]")
    assert inaccessible(page) == []


def test_a_decoded_record_is_shown_as_text(explorer: Explorer) -> None:
    page = explorer.open("#/topics/users/0/0")
    expect(page.locator("pre.contents").last).to_contain_text(f'"name": "{HOSTILE}"')
    expect(page.get_by_text("value by schema 1")).to_be_visible()
    assert page.locator("img:not([src='icon.svg'])").count() == 0


def test_only_the_beginning_of_a_value_of_10_mb_is_shown_and_the_whole_can_be_saved(
    explorer: Explorer, broker: Broker
) -> None:
    """The page has no more than the browser can lay out at once, so it goes on while the value is shown."""
    page = explorer.open("#/topics/large/0/0")
    expect(page.get_by_text("only the beginning of 10 MB")).to_be_visible()
    assert page.evaluate("() => document.body.innerText.length") < 200_000
    page.get_by_role("tab", name="hex").click()
    expect(page.locator("pre.contents").last).to_contain_text("61 61 61")
    assert page.evaluate("() => document.body.innerText.length") < 400_000
    with page.expect_download() as saved:
        page.get_by_role("button", name="save the whole").click()
    assert saved.value.path().read_bytes() == LARGE
    page.keyboard.press("1")
    expect(page.get_by_role("main", name="Frames")).to_be_visible()


def test_a_partition_is_shown_with_its_producers_and_their_last_batches(explorer: Explorer, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for value in ("first", "second"):
        producer.produce("orders", value, key="k", partition=0)
        assert producer.flush(60) == 0
    page = explorer.open("#/topics/orders")
    page.get_by_role("region", name="Partitions").get_by_role("button", name="1", exact=True).click()
    expect(page.get_by_text("producers of orders-0")).to_be_visible()
    expect(page.get_by_text("1–1 at ")).to_be_visible()
    assert inaccessible(page) == []


def test_the_schemas_view_shows_the_registered_schemas(explorer: Explorer) -> None:
    page = explorer.open("#/topics/users/0/0")
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("region", name="Schema")).to_contain_text('"name": "User"')
    assert page.url.endswith("#/schemas/users-value/1")
    versions = page.get_by_role("listbox", name="Versions")
    versions.focus()
    page.keyboard.press("Home")
    expect(versions.locator("[aria-selected=true]")).to_contain_text("AVRO")
    expect(page.get_by_role("region", name="Schema")).to_contain_text(HOSTILE)
    assert page.locator("img:not([src='icon.svg'])").count() == 0
    page.get_by_role("link", name="countries version 1").click()
    expect(page.get_by_role("region", name="Schema")).to_contain_text("is referred to by")
    assert inaccessible(page) == []
    page.get_by_label("Find a subject").fill("value")
    expect(page.get_by_role("listbox", name="Subjects").get_by_role("option")).to_have_count(1)


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
