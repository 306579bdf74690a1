"""Answers that take long to make: a thread makes them and their JSON, so that the broker's loop goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from fastapi.responses import Response

DEPTH: Final = 3  # of the rows of a tree in an answer


async def made_aside(make: Callable[[], Any]) -> Response:
    """Return the answer with what `make` returns."""
    return Response(await asyncio.to_thread(lambda: _json(make(), DEPTH)), media_type="application/json")


def _json(value: Any, depth: int) -> str:
    """Return JSON, which `json` encodes in small parts: it keeps all other threads waiting meanwhile."""
    if depth and isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(each, depth - 1)}" for name, each in value.items()) + "}"
    if depth and isinstance(value, list):
        return "[" + ",".join(_json(each, depth - 1) for each in value) + "]"
    return json.dumps(value)
