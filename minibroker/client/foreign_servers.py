"""Servers that do not speak Kafka's protocol, by the first bytes that they send."""

from __future__ import annotations

from typing import Final

STARTS: Final = {
    b"HTTP/": "HTTP",
    b"SSH-": "SSH",
    b"AMQP": "AMQP",
    b"\x15\x03": "TLS",  # an alert
}


def foreign_protocol(start: bytes) -> str | None:
    """Return the name of the protocol of which these are the first bytes, or None if it is not known."""
    return next((name for beginning, name in STARTS.items() if start.startswith(beginning)), None)
