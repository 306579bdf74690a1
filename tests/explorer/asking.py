"""Asks an explorer's server as its page does."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from minibroker.testing import Broker


def ask(broker: Broker, path: str, method: str = "GET", body: Any = None) -> Any:
    """Return the answer, or the error as (status, message)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.explorer_url}api/{path}", data, method=method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
            return json.loads(content) if content else None
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["message"]


def page(broker: Broker, path: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and content of a file of the page, or of any path that begins with /."""
    base = urlsplit(broker.explorer_url)
    url = f"{base.scheme}://{base.netloc}{path}" if path.startswith("/") else broker.explorer_url + path
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def events(broker: Broker, after: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the name and the data of each server-sent event, until the stream ends or nobody asks any more."""
    with urllib.request.urlopen(f"{broker.explorer_url}api/frames/stream?after={after}", timeout=30) as stream:
        name = ""
        for line in stream:
            if line.startswith(b"event: "):
                name = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])
