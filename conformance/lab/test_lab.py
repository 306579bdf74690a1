"""The lab in Chromium: its page loads, and a broker with clients runs in it."""

from __future__ import annotations

import http.server
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from conformance.explorer.browsing import Explorer, chromium, inaccessible
from conformance.explorer.walking import Reader, frames_and_topics, walk_on
from conformance.lab.inside import HOSTILE, InTheTab, drop, make_hostile_batches, zip_folder
from minibroker.testing import Broker
from tests.test_readme import README, environment, steps_in

DOCUMENT = README.parent / "docs" / "lab.md"
MOST_BYTES = 12_000_000
LOAD_MS = 120_000  # Python compiles its WebAssembly and our modules, beside all other tests
CODE = """
from minibroker.protocol.records.compression import compress, decompress
await broker.aproduce('from-python', 'tea')
assert all(bytes(decompress(codec, compress(codec, b"tea"), 3)) == b"tea" for codec in range(1, 5))
print("all", "codecs")
"""
expect.set_options(timeout=LOAD_MS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the document's command writes."""
    ((_, command, output),) = steps_in(DOCUMENT.read_text())
    directory = tmp_path_factory.mktemp("lab")
    command = command.replace("build/lab", str(directory))
    done = subprocess.run(command, shell=True, cwd=README.parent, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.replace(str(directory), "build/lab")
    assert re.sub(r"[\d.]+", "N", said) == re.sub(r"[\d.]+", "N", output)
    return directory


class Handler(http.server.SimpleHTTPRequestHandler):
    """A server of files, which does not compress and says nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_the_files_of_the_lab_are_small(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*")) < MOST_BYTES


def test_clients_and_python_cells_run_in_the_lab(browser: Browser, url: str) -> None:
    lab = Explorer(browser, url)
    lab.page.set_default_timeout(LOAD_MS)
    page = lab.open()
    expect(page.get_by_text("OffsetCommit").first).to_be_visible()
    page.goto(f"{url}#/lab")
    page.get_by_role("button", name="start", exact=True).click()
    joined = page.locator("tr[data-client=consumer-3]")
    expect(joined).to_contain_text("generation 2")
    joined.get_by_role("button", name="kill").click()
    expect(joined).to_contain_text("killed")
    page.get_by_label("Code").fill(CODE)
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("all codecs")
    assert not inaccessible(page)
    page.get_by_role("button", name="register").click()
    expect(page.get_by_text("version 1 of orders-value has the id 1")).to_be_visible()
    page.get_by_role("link", name="orders-value").click()
    expect(page.get_by_text('"name": "Order"')).to_be_visible()
    page.goto(f"{url}#/topics/from-python")
    expect(page.get_by_text("1 partition, 1 offset, 71 B")).to_be_visible()
    break_and_mend(page, url)
    end_an_endless_loop(page)
    lab.close()


def break_and_mend(page: Page, url: str) -> None:
    """Damage a record, fail requests, and kill a node; then see that the producer goes on."""
    source = InTheTab(page, url)
    page.goto(f"{url}#/lab")
    page.get_by_role("button", name="flip a bit").click()
    expect(page.get_by_text("flipped: byte")).to_be_visible()
    page.goto(f"{url}#/controls")
    page.get_by_placeholder("Produce").fill("Produce")
    page.get_by_label("error", exact=True).fill("NOT_LEADER_OR_FOLLOWER")
    page.get_by_role("button", name="add").click()
    fault = page.locator("tr", has_text="NOT_LEADER_OR_FOLLOWER")
    expect(fault.locator("td").nth(3)).not_to_have_text("0")
    page.get_by_role("button", name="remove all").click()
    expect(fault).to_have_count(0)
    node = page.locator("tr", has_text="node 2")
    node.get_by_role("button", name="kill").click()
    page.wait_for_function("async () => !(await (await lab.fetch('api/about')).json()).nodes.includes(2)")
    node.get_by_role("button", name="start").click()
    page.wait_for_function("async () => (await (await lab.fetch('api/about')).json()).nodes.includes(2)")
    page.goto(f"{url}#/lab")
    producer = page.locator("tr[data-client=producer-1]")
    written = int(producer.locator(".num").inner_text())
    page.wait_for_function(
        "least => Number(document.querySelector('tr[data-client=producer-1] .num').textContent) > least", arg=written
    )
    assert source.ask("files/damaged")["damaged"] == {"orders-0/00000000000000000000.log": 1}


def end_an_endless_loop(page: Page) -> None:
    page.get_by_label("Code").fill("while True: pass")
    page.get_by_role("button", name="run", exact=True).click()
    page.get_by_role("button", name="end it and begin anew").click()
    expect(page.locator("#loading")).to_be_visible()
    expect(page.get_by_label("Code")).to_have_value("while True: pass")


def test_a_link_with_a_damaged_saved_state_is_reported(browser: Browser, url: str) -> None:
    lab = Explorer(browser, url)
    lab.page.goto(f"{url}#state=%ff&UEsDBA==")
    expect(lab.page.locator("#said")).to_contain_text("Load the page again for a new broker.")
    lab.close()


def test_a_saved_state_is_opened_from_a_file_and_a_link_without_a_network(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    lab = Explorer(browser, url)
    lab.page.set_default_timeout(LOAD_MS)
    page = lab.open("#/lab")
    page.get_by_label("Code").fill("await broker.aproduce('kept', 'tea')")
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("0")
    with page.expect_download() as download:
        page.get_by_role("button", name="save to a file").click()
    download.value.save_as(tmp_path / "state.zip")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="copy a link").click()
    expect(page.get_by_text("The link is in the clipboard.")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    page.wait_for_function("navigator.serviceWorker.controller")
    page.context.set_offline(True)  # from here on the service worker has all files
    page.locator("input[type=file]").set_input_files(tmp_path / "state.zip")
    expect(page.get_by_role("button", name="follow")).to_be_visible()
    page.goto(f"{url}#/topics/kept")
    expect(page.get_by_text("1 partition, 1 offset")).to_be_visible()
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_role("button", name="follow")).to_be_visible()
    page.goto(f"{url}#/topics/kept")
    expect(page.get_by_text("1 partition, 1 offset")).to_be_visible()
    (tmp_path / "cat.zip").write_bytes(b"PK\x03\x04 meow")
    page.goto(f"{url}#/lab")
    page.locator("input[type=file]").set_input_files(tmp_path / "cat.zip")
    expect(page.locator("#said")).to_contain_text("cat.zip cannot be unpacked: ")
    lab.close()


def test_the_lessons_can_be_completed_in_the_lab(browser: Browser, url: str) -> None:
    lab = Explorer(browser, url)
    lab.page.set_default_timeout(LOAD_MS)
    page = lab.open()
    reader = Reader(InTheTab(page, url), page)
    frames_and_topics(reader)
    walk_on(reader)
    lab.close()


def test_a_log_directory_dropped_on_the_page_is_opened_whatever_its_records_are(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    with Broker(nodes=2, directory=tmp_path / "logs") as broker:
        broker.create_topic("dropped", 2)
        broker.produce("dropped", "tea", partition=1)
        broker.create_topic(HOSTILE)
    (tmp_path / "logs" / f"{HOSTILE}-0" / f"{0:020}.log").write_bytes(make_hostile_batches())
    lab = Explorer(browser, url)
    lab.page.set_default_timeout(LOAD_MS)
    page = lab.open()
    drop(page, "logs.zip", zip_folder(tmp_path / "logs"))
    expect(page.locator("#loading")).to_be_visible()
    page.locator("main#view").wait_for()
    page.goto(f"{url}#/topics/dropped/1")
    expect(page.get_by_text("2 partitions, 1 offset")).to_be_visible()
    expect(page.get_by_text("tea")).to_be_visible()
    page.goto(f"{url}#/topics/{HOSTILE}/0")
    expect(page.get_by_text("alive")).to_be_visible()
    expect(page.get_by_text("of the batch only the first 16 MiB are shown")).to_be_visible()
    for number in range(2):
        page.get_by_role("listbox", name="Records").get_by_role("option").nth(number).click()
    page.goto(f"{url}#/lab")
    page.get_by_label("Code").fill("sum((1, 1))")
    page.get_by_role("button", name="run", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("2")
    lab.close()
