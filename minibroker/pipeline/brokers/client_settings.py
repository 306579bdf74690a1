"""What Spark's users write after `kafka.`, as kafka-python wants it: Java's names, and librdkafka's where they differ.

A name that is not understood is refused: nothing is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.pipeline.log_source import OptionError


class ClientSettings:
    """The settings of a client, checked. Raises `OptionError`."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str], client_id: str = "") -> None:
        rest = dict(settings)
        self.bootstrap_servers = bootstrap_servers
        self.client_id = rest.pop("client.id", client_id)
        self.request_timeout_ms = taken(rest, "request.timeout.ms", 30_000)
        self.api_timeout_ms = taken(rest, "default.api.timeout.ms", 60_000)
        self.retry_backoff_ms = taken(rest, "retry.backoff.ms", 100)
        self.retry_backoff_max_ms = taken(rest, "retry.backoff.max.ms", 1_000)
        if rest:
            raise OptionError(f"unknown option kafka.{min(rest)}")

    def connection(self) -> dict[str, Any]:
        """kafka-python's configuration of connections."""
        return {
            "bootstrap_servers": self.bootstrap_servers.split(","),
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "reconnect_backoff_max_ms": 1_000,
            "receive_message_max_bytes": 0x7FFFFFFF,
        }


def taken(settings: dict[str, str], name: str, default: int, minimum: int = 0) -> int:
    """Take a number out of the settings. Raises `OptionError`."""
    text = settings.pop(name, None)
    try:
        number = default if text is None else int(text)
    except ValueError:
        raise OptionError(f"kafka.{name} must be a whole number, not {text!r}") from None
    if not minimum <= number < 1 << 31:
        raise OptionError(f"kafka.{name} must be from {minimum} to {(1 << 31) - 1}, not {number}")
    return number
