"""The commands' client of registries, which need not be minibroker's."""

from __future__ import annotations

import json
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
def test_credentials_are_told_to_no_other_server(is_elsewhere: bool) -> None:
    seen: list[str | None] = []
    with server(seen) as other, server(seen, other if is_elsewhere else None) as url:
        assert RegistryClient(url, token="secret").ask("GET", "moved") == []
    assert seen == ["Bearer secret", None if is_elsewhere else "Bearer secret"]


def test_references_in_a_circle_are_followed_once() -> None:
    """A registry refuses them, but whatever answers may be another program."""

    class Circle(RegistryClient):
        def ask(self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None) -> Any:
            other = "b" if path[-3:] == ("a", "versions", "1") else "a"
            return {"schema": f'"{other}"', "references": [{"name": other, "subject": other, "version": 1}]}

    found = Circle("http://localhost").find(1)
    assert dict(found.references) == {"b": '"a"', "a": '"b"'}


def test_references_that_are_too_deep_are_an_error() -> None:
    class Endless(RegistryClient):
        def ask(self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None) -> Any:
            next = f"{path[1]}x"
            return {"schema": '"int"', "references": [{"name": next, "subject": next, "version": 1}]}

    with pytest.raises(RequestFailed, match="100 deep"):
        Endless("http://localhost").find(1)


@pytest.mark.parametrize("answer", [[], {"schema": 1}, {"schema": '"int"', "references": [{"name": "a"}]}])
def test_an_answer_that_is_no_schema_is_an_error(answer: Any) -> None:
    class Odd(RegistryClient):
        def ask(self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None) -> Any:
            return answer

    with pytest.raises(RequestFailed, match="no schema"):
        Odd("http://localhost").find(1)


@pytest.mark.parametrize("knows_parts", [True, False])
def test_a_list_in_parts_is_read_to_its_end(knows_parts: bool) -> None:
    class Listing(RegistryClient):
        def ask(self, method: str, *path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
            return list(range(5))[query["offset"] :][:2] if knows_parts and query is not None else [0, 1, 2, 3, 4]

    assert Listing("http://localhost").ask_all("schemas", query={}) == [0, 1, 2, 3, 4]


def test_references_within_a_context_are_found(registry: Asking) -> None:
    registry.register("a", record("A"))
    registry.register(":.c:a", record("A", ("f", "string")))
    references = [{"name": "A", "subject": "a", "version": 1}]
    guid = registry.register(":.c:d", record("D", ("a", "A")), references=references).body["guid"]
    found = RegistryClient(registry.url).find(guid)
    assert json.loads(found.references["A"]) == record("A", ("f", "string"))
