"""Metrics over HTTP, on both event loops: what is answered, what is refused, and that nobody holds the server up."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from minibroker.broker.configs.listeners import Listener
from minibroker.broker.configs.settings import Settings
from minibroker.broker.metadata.nodes import Endpoint
from minibroker.broker.monitoring.metrics_server import MetricsServer
from minibroker.broker.network import http_server
from minibroker.broker.server import bind_listener
from minibroker.testing.embedded.certificates import CertificateAuthority
from tests.cases import for_each
from tests.loops import LOOPS

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on the one and on the other event loop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


async def metrics() -> bytes:
    await asyncio.sleep(0)
    return b"minibroker_info 1\n"


async def started(
    exposition: Callable[[], Awaitable[bytes]] = metrics, *, is_ready: bool = True
) -> tuple[MetricsServer, tuple[str, int]]:
    bound = bind_listener(Listener("METRICS", "HTTP", "127.0.0.1", 0, "", 0), Settings({}))
    server = MetricsServer(exposition, lambda: is_ready)
    await server.serve(bound)
    return server, (bound.endpoint.host, bound.endpoint.port)


async def asked(address: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


@for_each("path", ["/metrics", "/health", "/ready"])
def test_a_host_header_of_another_site_is_rejected(run: Run, path: str) -> None:
    """A site whose name is made to stand for this machine's address (DNS rebinding) gets nothing."""

    async def talk() -> list[bytes]:
        server, address = await started()
        lines = [b"Host: evil.example:80", b"Host: localhost:80", b"Host: localhost\r\nOrigin: http://evil.example"]
        answers = [await asked(address, b"GET %s HTTP/1.1\r\n%s\r\n\r\n" % (path.encode(), each)) for each in lines]
        await server.close()
        return [answer.split(b" ")[1] for answer in answers]

    assert run(talk()) == [b"403", b"200", b"403"]


@for_each(
    ("method", "path", "status", "body"),
    [
        ("GET", "/metrics", 200, b"minibroker_info 1\n"),
        ("GET", "/", 200, b"minibroker_info 1\n"),
        ("GET", "/metrics?name[]=x", 200, b"minibroker_info 1\n"),
        ("HEAD", "/metrics", 200, b""),
        ("GET", "/health", 200, b"ok\n"),
        ("GET", "/ready", 200, b"ok\n"),
        ("HEAD", "/ready", 200, b""),
        ("POST", "/health", 405, b"Only GET and HEAD.\n"),
        ("POST", "/metrics", 405, b"Only GET and HEAD.\n"),
        ("GET", "/metric", 404, b"The metrics are at /metrics.\n"),
    ],
)
def test_the_metrics_server_serves_only_metrics_and_probes(
    run: Run, method: str, path: str, status: int, body: bytes
) -> None:
    async def talk() -> tuple[int, bytes, str]:
        server, address = await started()

        def ask() -> tuple[int, bytes, str]:
            connection = http.client.HTTPConnection(*address, timeout=30)
            connection.request(method, path)
            response = connection.getresponse()
            answer = response.status, response.read(), response.headers["Content-Type"]
            connection.close()
            return answer

        answer = await asyncio.get_running_loop().run_in_executor(None, ask)
        await server.close()
        return answer

    found, text, content_type = run(talk())
    assert (found, text) == (status, body)
    assert content_type.startswith("text/plain")


def test_a_stopped_broker_is_healthy_but_not_ready(run: Run) -> None:
    async def talk() -> list[bytes]:
        server, address = await started(is_ready=False)
        answers = [await asked(address, f"GET {path} HTTP/1.1\r\n\r\n".encode()) for path in ("/health", "/ready")]
        await server.close()
        return answers

    healthy, ready = run(talk())
    assert healthy.startswith(b"HTTP/1.1 200 OK\r\n")
    assert ready.startswith(b"HTTP/1.1 503 ") and ready.endswith(b"\r\n\r\nThe broker is not running.\n")


def test_a_probe_is_answered_while_metrics_are_computed(run: Run) -> None:
    async def talk() -> bytes:
        go_on = asyncio.Event()

        async def slow() -> bytes:
            await go_on.wait()
            return b""

        server, address = await started(slow)
        scraped = asyncio.ensure_future(asked(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        answer = await asked(address, b"GET /health HTTP/1.1\r\n\r\n")
        go_on.set()
        await scraped
        await server.close()
        return answer

    assert run(talk()).endswith(b"\r\n\r\nok\n")


@for_each("request_", [b"", b"\r\n\r\n", b"GET", b"x" * 20_000, b"GET\r\n\r\n", b"\xff\xfe \xff\r\n\r\n"])
def test_an_invalid_request_closes_only_its_connection(run: Run, request_: bytes) -> None:
    async def talk() -> bytes:
        server, address = await started()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request_)
        writer.write_eof()
        await reader.read()
        writer.close()
        answer = await asked(address, b"GET /metrics HTTP/1.1\r\n\r\n")
        await server.close()
        return answer

    assert run(talk()).endswith(b"\r\n\r\nminibroker_info 1\n")


def test_each_http_client_uses_the_current_tls_certificate(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "minibroker.metrics")
    authority = CertificateAuthority()
    names = ("first", "second")
    contexts = [authority.issue_certificate(name, ("127.0.0.1",)).make_server_context() for name in names]
    trusting = ssl.create_default_context(cadata=authority.certificate)

    async def name_of_the_other(address: tuple[str, int]) -> str:
        reader, writer = await asyncio.open_connection(*address, ssl=trusting)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        (((_, name),),) = writer.get_extra_info("peercert")["subject"]
        assert (await reader.read()).endswith(b"\r\n\r\nminibroker_info 1\n")
        writer.close()
        return str(name)

    async def talk() -> list[str]:
        present: list[ssl.SSLContext] = []
        bound = bind_listener(Listener("METRICS", "HTTP", "127.0.0.1", 0, "", 0), Settings({}))
        server, address = MetricsServer(metrics, lambda: True), (bound.endpoint.host, bound.endpoint.port)
        await server.serve(bound, lambda: present[-1] if present else None)
        with pytest.raises(OSError):
            await name_of_the_other(address)
        seen: list[str] = []
        for context in contexts:
            present.append(context)
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await asked(address, b"GET /metrics HTTP/1.1\r\n\r\n")
            seen.append(await name_of_the_other(address))
        await server.close()
        bound.socket.close()
        return seen

    assert run(talk()) == list(names)
    assert caplog.messages[0].startswith("metrics are at https://127.0.0.1:")


def test_an_idle_client_is_disconnected(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "PATIENCE_SECONDS", 0.01)

    async def talk() -> bytes:
        server, address = await started()
        answer = await asked(address, b"GET /metrics")
        await server.close()
        return answer

    assert run(talk()) == b""


def test_too_many_http_clients_are_rejected(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CLIENTS_MAX", 1)

    async def talk() -> bytes:
        held = asyncio.Event()

        async def slow() -> bytes:
            held.set()
            await asyncio.Event().wait()
            return b""

        server, address = await started(slow)
        first = asyncio.ensure_future(asked(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        await held.wait()
        second = await asked(address, b"")
        await server.close()
        assert await first == b""
        return second

    assert run(talk()) == b""


def test_a_metrics_failure_is_logged_and_the_next_scrape_succeeds(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([ZeroDivisionError()])

    async def failing() -> bytes:
        for failure in failures:
            raise failure
        return b"well\n"

    async def talk() -> tuple[bytes, bytes]:
        server, address = await started(failing)
        answers = [await asked(address, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(2)]
        await server.close()
        return answers[0], answers[1]

    first, second = run(talk())
    assert first == b"" and second.endswith(b"well\n")
    assert "an HTTP request failed" in caplog.text


def test_scrapes_are_made_one_after_the_other(run: Run) -> None:
    running = most = 0

    async def counted() -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return b""

    async def talk() -> None:
        server, address = await started(counted)
        await asyncio.gather(*(asked(address, b"GET / HTTP/1.1\r\n\r\n") for _ in range(5)))
        await server.close()

    run(talk())
    assert most == 1


def test_a_metrics_server_can_be_closed_before_it_serves(run: Run) -> None:
    async def talk() -> None:
        await MetricsServer(metrics, lambda: True).close()

    run(talk())


def test_the_logged_metrics_address_is_a_url(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "minibroker.metrics")

    async def talk(host: str) -> int:
        bound = bind_listener(Listener("METRICS", "HTTP", "127.0.0.1", 0, "", 0), Settings({}))
        server = MetricsServer(metrics, lambda: True)
        await server.serve(bound._replace(endpoint=Endpoint(host, bound.endpoint.port)))
        await server.close()
        return bound.endpoint.port

    ports = [run(talk(host)) for host in ("127.0.0.1", "::1")]
    assert [record.getMessage() for record in caplog.records if record.name == "minibroker.metrics"] == [
        f"metrics are at http://127.0.0.1:{ports[0]}/metrics",
        f"metrics are at http://[::1]:{ports[1]}/metrics",
    ]
