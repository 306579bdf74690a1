"""Asks an HTTP application without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.web.application import Application
from minibroker.web.messages import Request

LOCAL = {"host": "127.0.0.1"}


class Answered(NamedTuple):
    """An answer with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asking:
    """A client of an application, which runs in a loop of its own."""

    def __init__(self, application: Application, headers: Mapping[str, str] = LOCAL) -> None:
        self._application, self._headers = application, headers

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        """Return the answer. The body is JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = {"content-type": "application/json"} if data else {}
        return asyncio.run(self._asked(Request.make_request(method, path, {**self._headers, **kind, **headers}, data)))

    def get(self, path: str, **headers: str) -> Answered:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answered:
        return self.ask("POST", path, body, **headers)

    def delete(self, path: str) -> Answered:
        return self.ask("DELETE", path)

    async def _asked(self, request: Request) -> Answered:
        answer = await self._application.answer(request)
        if isinstance(answer.body, bytes):
            return Answered(answer.status, answer.headers, answer.body)
        return Answered(answer.status, answer.headers, b"".join([piece async for piece in answer.body]))
