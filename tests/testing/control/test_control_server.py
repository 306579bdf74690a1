"""The control's server: what takes long is prepared by a thread, so that the broker's clients need not wait."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from minibroker.addresses import HostPort
from minibroker.testing import Broker
from minibroker.testing.control import app, control_routes
from minibroker.testing.control.control_server import serve_control


def status(url: str) -> int:
    try:
        return got(url)
    except HTTPError as error:
        with error:
            return int(error.code)


def got(url: str) -> int:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return int(answer.status)


async def test_the_openapi_document_is_generated_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    describe = app.make_openapi_document

    def watched(*given: Any, **named: Any) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return describe(*given, **named)

    monkeypatch.setattr(app, "make_openapi_document", watched)
    async with Broker() as broker, serve_control(broker, HostPort(), None) as url:
        assert await asyncio.to_thread(got, f"{url}/openapi.json") == 200
    assert threads and threading.current_thread() not in threads


async def test_the_explorer_sees_clients_that_come_before_its_first_request() -> None:
    async with Broker() as broker, serve_control(broker, HostPort(), None, explorer=True):
        assert broker.journal.is_on


async def test_a_journal_that_a_test_turned_off_stays_off() -> None:
    async with Broker() as broker, serve_control(broker, HostPort(), None, explorer=True) as url:
        broker.journal.off()
        assert await asyncio.to_thread(got, f"{url}/explorer/api/about") == 200
        assert not broker.journal.is_on


async def test_a_control_server_that_got_no_request_stops() -> None:
    async with Broker() as broker, serve_control(broker, HostPort(), None) as url:
        assert url.startswith("http://127.0.0.1:")


async def test_a_wait_over_http_ends_when_the_server_stops(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker() as broker:
        async with serve_control(broker, HostPort(), None) as url:
            kind = {"content-type": "application/json"}
            wait = urllib.request.Request(f"{url}/v1/groups/g/wait", b'{"timeout": "1 h"}', kind, method="POST")
            waiting = asyncio.create_task(asyncio.to_thread(urllib.request.urlopen, wait, timeout=60))
            while not broker.watch._waiting:
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await waiting
        assert broker.watch._waiting == []
    assert caplog.text == ""


async def test_probes_need_no_token_and_report_whether_clients_can_connect() -> None:
    async with Broker(nodes=2) as broker, serve_control(broker, HostPort(), "secret") as url:

        async def probes() -> tuple[int, int]:
            return await asyncio.to_thread(status, f"{url}/health"), await asyncio.to_thread(status, f"{url}/ready")

        assert await probes() == (200, 200)
        broker.kill_node(1)
        assert await probes() == (200, 200), "the other node is there"
        broker.kill_node(2)
        assert await probes() == (200, 503)
        await broker.astart_node(1)
        assert await probes() == (200, 200)
        broker.kill()
        assert await probes() == (200, 503)
        await broker.arestart()
        assert await probes() == (200, 200)


async def test_the_oldest_of_many_snapshots_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_routes, "MOST_SNAPSHOTS", 2)
    async with Broker() as broker, serve_control(broker, HostPort(), None) as url:
        before = list(broker.directory.parent.iterdir())
        numbers = [json.loads(await asyncio.to_thread(posted, f"{url}/v1/snapshots")) for _ in range(4)]
        assert numbers == [{"snapshot": number} for number in (1, 2, 3, 4)]
        assert len(list(broker.directory.parent.iterdir())) == len(before) + 2
        await asyncio.to_thread(posted, f"{url}/v1/snapshots/3/restore")
        with pytest.raises(HTTPError) as refused:
            await asyncio.to_thread(posted, f"{url}/v1/snapshots/2/restore")
        with refused.value as answer:
            assert json.loads(answer.read())["message"] == "there is no snapshot 2 any more"


def posted(url: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=30) as answer:
        content: bytes = answer.read()
        return content
