"""The commands' client of registries, which need not be minibroker's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from minibroker.registry.registry_client import RegistryClient


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
