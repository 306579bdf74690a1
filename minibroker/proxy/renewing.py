"""Renews the proxy's login at a client's node before the session ends (KIP-368), between two requests of the client."""

from __future__ import annotations

import asyncio
from typing import Protocol

from minibroker.broker.clock import Clock
from minibroker.client.asynchronous import LoopLink, LoopNetwork
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.opening import log_in_again


class Renewed(Protocol):
    """A conversation, whose upstream connection is that of a link."""

    async def pause(self, link: LoopLink) -> None:
        """Hold requests from the end of the current one on, and give the next answer of the node to `link`."""

    def go_on(self) -> None:
        """Send what was held."""


async def keep_logged_in(conversation: Renewed, link: LoopLink, settings: ClientSettings, clock: Clock) -> None:
    """Log in again each time, until the task is cancelled. Raises one of `FAILURES`."""
    network = LoopNetwork()
    while link.expires_s < float("inf"):
        is_due = asyncio.Event()
        timer = clock.call_later((link.expires_s - network.now()) * 1000, is_due.set)
        try:
            await is_due.wait()
        finally:
            timer.cancel()
        await conversation.pause(link)
        await log_in_again(link, settings, network, settings.setup_timeout_ms / 1000)
        conversation.go_on()
