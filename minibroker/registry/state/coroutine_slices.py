"""Long work of a coroutine in slices, between which others have their turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

SLICE_SECONDS: Final = 0.002
LARGE_BYTES: Final = 64 << 10  # JSON of this size takes about half a millisecond

ClientLeft = Callable[[], Awaitable[None]]  # returns when the client is gone


class LoopSlices:
    """The slices of one piece of work."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_SECONDS

    async def yield_to_loop_if_slice_is_over(self) -> None:
        """Let others run if this work has held the loop for `SLICE_SECONDS`; the state may have changed then."""
        if perf_counter() > self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_SECONDS


async def yield_to_loop_after_large_text(size_bytes: int) -> None:
    """Let others run between two calls on a text, if it is large, as neither can be interrupted."""
    if size_bytes > LARGE_BYTES:
        await asyncio.sleep(0)
