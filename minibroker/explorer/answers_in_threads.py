"""What takes long to read or to make: a thread does it, so that the broker's loop goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from minibroker.testing.seen.exchange import Exchange
from minibroker.web.messages import JSON, Answer

Result = TypeVar("Result")

LARGE_BYTES: Final = 8 << 10  # of both frames: what is smaller is read in a few ms, and a thread costs 0.1 ms
DEPTH: Final = 3  # of the rows of a tree in an answer


async def read_in_thread_if_large(exchange: Exchange, read_value: Callable[[], Result]) -> Result:
    """Return what `read_value` finds in an exchange. If that is large, a thread reads it."""
    return read_value() if exchange.size_bytes <= LARGE_BYTES else await asyncio.to_thread(read_value)


async def make_answer_in_thread(make_value: Callable[[], Any]) -> Answer:
    """Return the answer with what `make_value` returns."""
    return Answer(await asyncio.to_thread(lambda: _encode_json(make_value(), DEPTH).encode()), kind=JSON)


def _encode_json(value: Any, depth: int) -> str:
    """Return JSON. `json` encodes only small values of it at a time, as each call keeps all other threads waiting."""
    if depth and isinstance(value, dict):
        return (
            "{" + ",".join(f"{json.dumps(name)}:{_encode_json(each, depth - 1)}" for name, each in value.items()) + "}"
        )
    if depth and isinstance(value, list):
        return "[" + ",".join(_encode_json(each, depth - 1) for each in value) + "]"
    return json.dumps(value)
