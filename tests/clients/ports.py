"""Ports that a broker can take again after it was gone for a moment."""

from __future__ import annotations

import random
import socket

# Below what Linux gives to outgoing connections: there a client's own connection might take the port in between.
CANDIDATES = range(10_240, 32_768)


def free_ports(count: int = 1) -> int:
    """The first of `count` successive ports of 127.0.0.1 that nobody listens on now."""
    while True:
        first = random.SystemRandom().choice(CANDIDATES[:-count])
        if all(_is_free(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
