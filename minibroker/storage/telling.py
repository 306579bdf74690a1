"""Calling several waiters: each is called, even if another one fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

logger = logging.getLogger("minibroker.storage")


def tell_each(waiters: Iterable[Callable[..., None]], *told: Any) -> None:
    """Call each waiter with `told`. One that raises is a mistake in it alone, and goes to the log."""
    for waiter in waiters:
        try:
            waiter(*told)
        except Exception:
            logger.exception("somebody who waited could not be told; the others are")
