"""The commands' client of registries, which need not be minibroker's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from minibroker.registry.registry_client import RegistryClient, RequestFailed
from tests.registry.asking import Asking, record


@contextmanager
def server(seen: list[str | None], redirect: str | None = None) -> Iterator[str]:
    """A server that notes credentials; it redirects the path `/moved`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            is_moved = self.path == "/moved"
            self.send_response(307 if is_moved else 200)
            if is_moved:
                self.send_header("Location", f"{redirect or ''}/here")
            self.send_header("Content-Length", "0" if is_moved else "2")
            self.end_headers()
            self.wfile.write(b"" if is_moved else b"[]")

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}"
        finally:
            serving.shutdown()
            thread.join()


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_credentials_are_sent_to_no_other_server(is_elsewhere: bool) -> None:
    seen: list[str | None] = []
    with server(seen) as other, server(seen, other if is_elsewhere else None) as url:
        assert RegistryClient(url, token="secret").send_request("GET", "moved") == []
    assert seen == ["Bearer secret", None if is_elsewhere else "Bearer secret"]


def test_cyclic_references_are_followed_once() -> None:
    """A registry refuses them, but whatever answers may be another program."""

    class Circle(RegistryClient):
        def send_request(
            self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None
        ) -> Any:
            other = "b" if path[-3:] == ("a", "versions", "1") else "a"
            return {"schema": f'"{other}"', "references": [{"name": other, "subject": other, "version": 1}]}

    found = Circle("http://localhost").find_schema(1)
    assert dict(found.references) == {"b": '"a"', "a": '"b"'}


def test_references_nested_too_deeply_are_rejected() -> None:
    class Endless(RegistryClient):
        def send_request(
            self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None
        ) -> Any:
            next = f"{path[1]}x"
            return {"schema": '"int"', "references": [{"name": next, "subject": next, "version": 1}]}

    with pytest.raises(RequestFailed, match="100 deep"):
        Endless("http://localhost").find_schema(1)


@pytest.mark.parametrize("answer", [[], {"schema": 1}, {"schema": '"int"', "references": [{"name": "a"}]}])
def test_a_response_that_is_not_a_schema_is_an_error(answer: Any) -> None:
    class Odd(RegistryClient):
        def send_request(
            self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None
        ) -> Any:
            return answer

    with pytest.raises(RequestFailed, match="no schema"):
        Odd("http://localhost").find_schema(1)


@contextmanager
def server_that_answers(answer: bytes | None) -> Iterator[str]:
    """Serve one connection at 127.0.0.1, and say nothing if `answer` is None; yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer or b"")

        thread = threading.Thread(target=serve)
        if answer is not None:
            thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        if answer is not None:
            thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "cannot connect to {}: no answer in 0.1 s"),
        (b"", "cannot connect to {}: Remote end closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot connect to {}: the server does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "{} is no schema registry: its answer is not JSON"),
    ],
)
def test_a_server_that_is_not_a_registry_is_reported_in_one_sentence(answer: bytes | None, said: str) -> None:
    with server_that_answers(answer) as url:
        # Nothing but silence has to wait for the time to be over.
        client = RegistryClient(url, timeout_s=0.1 if answer is None else 60)
        with pytest.raises(RequestFailed) as caught:
            client.send_request("GET", "subjects")
        assert str(caught.value) == said.format(url)


def test_an_unreachable_registry_is_reported_like_an_unreachable_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(RequestFailed, match=f"^cannot connect to {url}: Connection refused$"):
        RegistryClient(url).send_request("GET", "subjects")


@pytest.mark.parametrize("knows_parts", [True, False])
def test_a_paginated_list_is_read_completely(knows_parts: bool) -> None:
    class Listing(RegistryClient):
        def send_request(
            self, method: str, *path: str, body: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any:
            return list(range(5))[query["offset"] :][:2] if knows_parts and query is not None else [0, 1, 2, 3, 4]

    assert Listing("http://localhost").fetch_list("schemas", query={}) == [0, 1, 2, 3, 4]


def test_references_within_a_context_are_resolved(registry: Asking) -> None:
    registry.register("a", record("A"))
    registry.register(":.c:a", record("A", ("f", "string")))
    references = [{"name": "A", "subject": "a", "version": 1}]
    guid = registry.register(":.c:d", record("D", ("a", "A")), references=references).body["guid"]
    found = RegistryClient(registry.url).find_schema(guid)
    assert json.loads(found.references["A"]) == record("A", ("f", "string"))
