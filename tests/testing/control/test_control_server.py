"""The control's server: what takes long is prepared by a thread, so that the broker's clients need not wait."""

from __future__ import annotations

import asyncio
import threading
import urllib.request

import fastapi.routing
import pytest

from minibroker.addresses import HostPort
from minibroker.testing import Broker
from minibroker.testing.control.app import Control
from minibroker.testing.control.control_server import controlled


def got(url: str) -> int:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return int(answer.status)


async def test_the_first_request_finds_all_paths_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI prepares paths when it compares a request with them first, and there are hundreds."""
    threads: list[threading.Thread] = []
    prepare = fastapi.routing.get_dependant

    def watched(**given: object) -> object:
        threads.append(threading.current_thread())
        return prepare(**given)  # type: ignore[arg-type]

    async with Broker() as broker, controlled(broker, HostPort(), None) as url:
        monkeypatch.setattr(fastapi.routing, "get_dependant", watched)
        assert await asyncio.to_thread(got, f"{url}/v1/clock") == 200
        assert threading.current_thread() not in threads


async def test_a_thread_makes_the_description(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    describe = Control.openapi

    def watched(app: Control) -> dict[str, object]:
        threads.append(threading.current_thread())
        return describe(app)

    monkeypatch.setattr(Control, "openapi", watched)
    async with Broker() as broker, controlled(broker, HostPort(), None) as url:
        assert await asyncio.to_thread(got, f"{url}/openapi.json") == 200
    assert threads and threading.current_thread() not in threads


async def test_a_server_may_stop_before_all_is_prepared() -> None:
    async with Broker() as broker, controlled(broker, HostPort(), None) as url:
        assert url.startswith("http://127.0.0.1:")
