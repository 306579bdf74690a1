"""What Spark's users write after `kafka.`, as kafka-python wants it: Java's names, and librdkafka's where they differ.

A name that is not understood is refused: nothing is accepted and ignored. Certificates and credentials are beside it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

from minibroker.pipeline.brokers.sasl import sasl_configuration
from minibroker.pipeline.brokers.tls import tls_context
from minibroker.pipeline.log_source import OptionError

DOCUMENT: Final = "docs/pipeline.md"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# What Spark's own connector refuses, too (but for the group), and what to do instead.
REFUSED: Final = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets are kept by Spark, and none are committed",
    "group.id": "no consumer group is used",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "keys are bytes: cast the column",
    "value.serializer": "values are bytes: cast the column",
    "bootstrap.servers": "it is given already",
}
# What has one value that is in force anyway.
FIXED: Final = {"check.crcs": "true", "allow.auto.create.topics": "false"}

# Numbers with kafka-python's names for them, and Java's defaults.
CONNECTION_NUMBERS: Final = {
    "connections.max.idle.ms": ("connections_max_idle_ms", 540_000),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", 50),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", 1_000),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", 10_000),
    "socket.connection.setup.timeout.max.ms": ("socket_connection_setup_timeout_max_ms", 30_000),
}
SOCKET_BUFFERS: Final = {
    "send.buffer.bytes": socket.SO_SNDBUF,
    "socket.send.buffer.bytes": socket.SO_SNDBUF,
    "receive.buffer.bytes": socket.SO_RCVBUF,
    "socket.receive.buffer.bytes": socket.SO_RCVBUF,
}


class Settings(dict[str, str]):
    """Settings from which each of their users takes those that it knows; `known` are the names of all of these."""

    def __init__(self, settings: Mapping[str, str], known: Iterable[str] = ()) -> None:
        super().__init__(settings)
        self.known: set[str] = {*known, *(settings.known if isinstance(settings, Settings) else ())}

    def pop(self, name: str, default: Any = None) -> Any:
        """Take a setting out, or give the default; in either case the name is known from now on."""
        self.known.add(name)
        return super().pop(name, default)

    def refuse_rest(self) -> None:
        """Raises `OptionError` for what nobody has taken."""
        if self:
            from difflib import get_close_matches

            name = min(self)
            nearest = [f"kafka.{each}" for each in get_close_matches(name, sorted(self.known))]
            meant = f": is {' or '.join(nearest)} meant?" if nearest else ";"
            raise OptionError(f"unknown option kafka.{name}{meant} {DOCUMENT} lists those that there are")


class ClientSettings:
    """The settings of a client, checked. Raises `OptionError`.

    If they are `Settings` from which others have taken theirs, the names of those are known to who misspells one.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str], client_id: str = "") -> None:
        rest = Settings(settings, known=FIXED)
        self._refuse(rest)
        self.request_timeout_ms = taken(rest, "request.timeout.ms", 30_000, 1)
        self.api_timeout_ms = taken(rest, "default.api.timeout.ms", 60_000, 1)
        self.retry_backoff_ms = taken(rest, "retry.backoff.ms", 100, 1)
        self.retry_backoff_max_ms = taken(rest, "retry.backoff.max.ms", 1_000, 1)
        self._connection: dict[str, Any] = {
            "bootstrap_servers": addresses(bootstrap_servers),
            "client_id": rest.pop("client.id", client_id),
            "request_timeout_ms": self.request_timeout_ms,
            "receive_message_max_bytes": 0x7FFFFFFF,
            "client_dns_lookup": _one_of(
                rest, "client.dns.lookup", ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
            ),
            "socket_options": _socket_options(rest),
            **{ours: taken(rest, name, default) for name, (ours, default) in CONNECTION_NUMBERS.items()},
            **_security(rest),
        }
        rest.refuse_rest()

    def connection(self) -> dict[str, Any]:
        """kafka-python's configuration of connections."""
        return dict(self._connection)

    def _refuse(self, rest: dict[str, str]) -> None:
        for name in sorted(rest.keys() & REFUSED.keys()):
            raise OptionError(f"kafka.{name} cannot be set: {REFUSED[name]}")
        for name in sorted(rest.keys() & FIXED.keys()):
            value = rest.pop(name)
            if value.strip().lower() != FIXED[name]:
                raise OptionError(f"kafka.{name} can only be {FIXED[name]}, not {value!r}")


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


def addresses(bootstrap_servers: str) -> list[str]:
    """`host:port`, separated by commas. Raises `OptionError`."""
    servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise OptionError(f"kafka.bootstrap.servers must be host:port, separated by commas, not {server!r}")
    if not servers:
        raise OptionError("kafka.bootstrap.servers names no server")
    return servers


def _security(rest: dict[str, str]) -> dict[str, Any]:
    protocol = rest.pop("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise OptionError(f"kafka.security.protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    configuration: dict[str, Any] = {"security_protocol": protocol}
    # Both are looked at in any case: Spark's users keep their credentials when they change the protocol.
    tls = tls_context(rest, wanted=protocol.endswith("SSL"))
    sasl = sasl_configuration(rest, wanted=protocol.startswith("SASL"))
    return {**configuration, **sasl, "ssl_context": tls}


def _one_of(rest: dict[str, str], name: str, values: tuple[str, ...]) -> str:
    value = rest.pop(name, values[0])
    if value not in values:
        raise OptionError(f"kafka.{name} must be one of {', '.join(values)}, not {value!r}")
    return value


def _socket_options(rest: dict[str, str]) -> list[tuple[int, int, int]]:
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, option in SOCKET_BUFFERS.items():
        size = taken(rest, name, -1, -1)
        if size > 0:  # -1 and, in librdkafka, 0 leave it to the system
            options.append((socket.SOL_SOCKET, option, size))
    return options
