"""A client's settings, by the names of Kafka's Java client, and by librdkafka's where they differ.

Unknown names are refused, not ignored. Certificates are in `client_tls`, SASL is in `credentials`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.client.client_errors import SettingError

if TYPE_CHECKING:
    import ssl

    from minibroker.client.client_tls import ReadStore
    from minibroker.client.credentials import Credentials

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DNS_LOOKUPS: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
SOCKET_BUFFERS: Final = {
    "send.buffer.bytes": socket.SO_SNDBUF,
    "socket.send.buffer.bytes": socket.SO_SNDBUF,
    "receive.buffer.bytes": socket.SO_RCVBUF,
    "socket.receive.buffer.bytes": socket.SO_RCVBUF,
}
INT32_MAX: Final = (1 << 31) - 1
SERVER: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:,\[\]]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RemainingSettings(dict[str, str]):
    """Settings from which each user takes out those that it knows. `known` are all names that users asked for."""

    def __init__(self, settings: Mapping[str, str], known: Iterable[str] = ()) -> None:
        super().__init__(settings)
        self.known: set[str] = {*known, *(settings.known if isinstance(settings, RemainingSettings) else ())}

    def __repr__(self) -> str:
        return f"Settings({', '.join(sorted(self))})"  # the values may be secret

    def pop(self, name: str, default: Any = None) -> Any:
        """Take a setting out and return it, or the default. Add the name to `known` in both cases."""
        self.known.add(name)
        return super().pop(name, default)

    def refuse_unknown_settings(self) -> None:
        """Raise `SettingError` if a setting is left, as nobody has popped it."""
        if self:
            from minibroker.suggestions import format_suggestion_of_similar_name  # here: most names are known

            name = min(self)
            raise SettingError(f"{name} is not known{format_suggestion_of_similar_name(name, sorted(self.known))}")


class ClientSettings:
    """The checked settings of a client. Defaults are the Java client's where it has the name. Raises `SettingError`.

    If `settings` are `RemainingSettings`, the names that others took out of them are also suggested for a misspelt one.
    `read_store` reads Java's trust stores (see `client_tls`).
    """

    def __init__(
        self, settings: Mapping[str, str], client_id: str = "minibroker", read_store: ReadStore | None = None
    ) -> None:
        rest = RemainingSettings(settings)
        self.bootstrap_servers: str = rest.pop("bootstrap.servers", "")
        self.bootstrap = parse_addresses(self.bootstrap_servers)
        self.client_id: str = rest.pop("client.id", client_id)
        socket_timeout_ms = pop_number(rest, "socket.timeout.ms", 30_000, 1)  # librdkafka's name
        self.request_timeout_ms = pop_number(rest, "request.timeout.ms", socket_timeout_ms, 1)
        self.api_timeout_ms = pop_number(rest, "default.api.timeout.ms", 60_000, 1)
        self.retry_backoff_ms = pop_number(rest, "retry.backoff.ms", 100, 1)
        self.retry_backoff_max_ms = pop_number(rest, "retry.backoff.max.ms", 1_000, 1)
        self.idle_max_ms = pop_number(rest, "connections.max.idle.ms", 540_000)
        self.reconnect_backoff_ms = pop_number(rest, "reconnect.backoff.ms", 50)
        self.reconnect_backoff_max_ms = pop_number(rest, "reconnect.backoff.max.ms", 1_000)
        self.setup_timeout_ms = pop_number(rest, "socket.connection.setup.timeout.ms", 10_000)
        self.setup_timeout_max_ms = pop_number(rest, "socket.connection.setup.timeout.max.ms", 30_000)
        self.max_frame_bytes = pop_number(rest, "receive.message.max.bytes", 100_000_000, 1_000)
        self.canonical_names = pop_choice(rest, "client.dns.lookup", DNS_LOOKUPS) == DNS_LOOKUPS[1]
        self.socket_buffers = {
            option: size for name, option in SOCKET_BUFFERS.items() if (size := pop_number(rest, name, -1, -1)) > 0
        }  # -1, and 0 in librdkafka, stand for the system's default
        self.tls, self.credentials = _pop_tls_and_credentials(rest, read_store)
        rest.refuse_unknown_settings()


def pop_number(settings: dict[str, str], name: str, default: int, minimum: int = 0) -> int:
    """Take a number out of the settings and return it. Raises `SettingError`."""
    text = settings.pop(name, None)
    try:
        number = default if text is None else int(text)
    except ValueError:
        raise SettingError(f"{name} must be a whole number, not {text!r}") from None
    if not minimum <= number <= INT32_MAX:
        raise SettingError(f"{name} must be from {minimum} to {INT32_MAX}, not {number}")
    return number


def pop_choice(settings: dict[str, str], name: str, values: tuple[str, ...]) -> str:
    """Take out a setting that has one of these values, of which the first is the default. Raises `SettingError`."""
    value = settings.pop(name, values[0])
    if value not in values:
        raise SettingError(f"{name} must be one of {', '.join(values)}, not {value!r}")
    return value


def parse_addresses(servers: str) -> list[Address]:
    """Parse `host:port`, separated by commas. Raises `SettingError`."""
    found = []
    for server in filter(None, map(str.strip, servers.split(","))):
        match = SERVER.fullmatch(server)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise SettingError(f"bootstrap.servers must be host:port, separated by commas, not {server!r}")
        found.append(Address(match["v6"] or match["host"], int(match["port"])))
    if not found:
        raise SettingError("bootstrap.servers names no server")
    return found


def _pop_tls_and_credentials(
    remaining_settings: RemainingSettings, read_store: ReadStore | None
) -> tuple[ssl.SSLContext | None, Credentials | None]:
    protocol = remaining_settings.pop("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise SettingError(f"security.protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    if protocol == "PLAINTEXT" and not remaining_settings:
        return None, None  # saves the imports
    from minibroker.client.client_tls import make_tls_context
    from minibroker.client.credentials import pop_credentials

    # Read both for every protocol: users keep their credentials when they change the protocol.
    tls = make_tls_context(remaining_settings, protocol.endswith("SSL"), read_store)
    return tls, pop_credentials(remaining_settings, protocol.startswith("SASL"))
