"""The files of the page, and who may ask for data."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from minibroker.addresses import LOOPBACK, HostPort
from minibroker.explorer.explorer_routes import FOLDER
from minibroker.testing import Broker
from minibroker.testing.control.control_server import serve_control
from minibroker.testing.embedded.embedded_broker import ServedExplorer
from tests.cases import for_each
from tests.explorer.asking import ask, page

MODULES = sorted(path for path in FOLDER.rglob("*.js"))
VENDORED = FOLDER / "vendor"


def test_the_page_runs_and_loads_only_local_files(explored: Broker) -> None:
    status, headers, content = page(explored)
    policy = headers["content-security-policy"].split("; ")
    assert (status, b"<title>minibroker explorer" in content) == (200, True)
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "connect-src 'self'" in policy
    assert "unsafe" not in headers["content-security-policy"] and "http" not in headers["content-security-policy"]


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?! type=\"module\" src=)|<style|style=|\son\w+=", text) == []


@for_each("name", ["../pages.py", "..%2fpages.py", "static/index.html", "nothing.js", "vendor", "%2e%2e/feeds.py"])
def test_files_outside_of_the_page_cannot_be_requested(explored: Broker, name: str) -> None:
    assert page(explored, name)[0] == 404


def test_all_modules_of_the_page_are_served_as_one_script(explored: Broker) -> None:
    status, headers, _ = page(explored, "bundle.js")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/javascript")


def test_the_page_requests_at_most_three_files() -> None:
    """A browser takes some ms for each."""
    assert re.findall(r'(?:src|href)="([^"]+)"', (FOLDER / "index.html").read_text()) == [
        "icon.svg",
        "style.css",
        "bundle.js",
    ]


@for_each("module", MODULES)
def test_a_module_imports_only_existing_files(module: Path) -> None:
    imported = re.findall(r"(?:from|import)\s*\(?\"([^\"]+)\"", module.read_text())
    assert [name for name in imported if not (module.parent / name).is_file()] == []


@for_each("module", [each for each in MODULES if VENDORED not in each.parents])
def test_no_module_inserts_text_as_markup(module: Path) -> None:
    """Whatever comes from records may be hostile; Preact escapes it unless one of these is used."""
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", module.read_text()) == []
    )


def test_each_library_has_its_licence_and_version() -> None:
    said = (VENDORED / "README.md").read_text()
    assert [path.name for path in VENDORED.glob("*.js") if f"`{path.name}`" not in said] == []
    assert [name for name in re.findall(r"`(LICENSE-\w+)`", said) if not (VENDORED / name).is_file()] == []


@pytest.mark.parametrize("path", ["api/about", "api/frames/grammar", "/v1/broker"])
def test_a_host_header_of_another_site_is_rejected(explored: Broker, path: str) -> None:
    """A site whose name is made to stand for this machine's address (DNS rebinding) gets no data."""
    port = urlsplit(explored.explorer_url).port
    assert page(explored, path, Host=f"evil.example:{port}")[0] == 403
    assert page(explored, path, Host=f"localhost:{port}")[0] == 200


def test_a_page_of_another_site_is_rejected(explored: Broker) -> None:
    assert page(explored, "api/about", Origin="http://evil.example")[0] == 403


async def test_the_token_is_required_for_data_but_not_for_the_page() -> None:
    async with Broker() as broker, serve_control(broker, HostPort(LOOPBACK, 0), "secret", explorer=True) as url:
        broker._explorer = ServedExplorer()
        broker._explorer.url = f"{url}/explorer/"
        try:
            statuses = await asyncio.to_thread(
                lambda: [
                    page(broker)[0],
                    page(broker, "api/about")[0],
                    page(broker, "api/frames/stream")[0],
                    page(broker, "api/about", Authorization="Bearer wrong")[0],
                    page(broker, "api/about", Authorization="Bearer secret", Host="any.example")[0],
                ]
            )
        finally:
            broker._explorer = None
    assert statuses == [200, 401, 401, 401, 200]


def test_the_page_gets_the_address_and_views_of_its_broker(explored: Broker) -> None:
    about = ask(explored, "about")
    assert about["bootstrap_servers"] == explored.bootstrap_servers
    assert "frames" in about["views"]


def test_a_broker_without_explorer_has_no_url() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="explorer=True"):
        _ = broker.explorer_url


def test_the_explorer_stays_up_while_the_broker_is_down() -> None:
    with Broker(explorer=True) as broker:
        url = broker.explorer_url
        broker.kill()
        assert ask(broker, "about")["nodes"] == []
        assert ask(broker, "topics") == (409, "the broker is not running")
        broker.restart()
        assert broker.explorer_url == url
        assert ask(broker, "about")["nodes"] == [1]


def test_a_file_of_the_page_that_the_browser_has_cached_is_not_sent_again(explored: Broker) -> None:
    """Chromium keeps a script as it was compiled only as long as the script itself is not sent again."""
    status, headers, content = page(explored, "bundle.js")
    assert (status, headers["cache-control"]) == (200, "no-cache") and content
    again = {"If-None-Match": headers["etag"]}
    status, headers, content = page(explored, "bundle.js", **again)
    assert (status, content) == (304, b"") and "content-security-policy" in headers
    assert page(explored, "style.css", **again)[0] == 200
