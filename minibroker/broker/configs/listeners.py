"""The listeners that a broker opens and advertises, from `listeners` and related settings.

This parses texts to `Listener`s. `server` opens the sockets, and replaces port 0 with the port that was chosen.

As in Kafka, some settings can be set for a listener, or for a SASL mechanism of it:

    listener.name.<listener>.<mechanism>.<setting>      in lower case; overrides the next ones
    listener.name.<listener>.<setting>
    <setting>
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from minibroker.broker.configs.settings import Settings, SettingsError, get_broker_setting_declaration
from minibroker.broker.configs.settings_table import PROTOCOLS, ConfigType
from minibroker.broker.configs.settings_values import InvalidValue, parse_setting_value
from minibroker.named_tuples import NamedTuple

# NAME://host:port, the host empty for all addresses, an IPv6 address in brackets or not, as in Kafka's Endpoint.
LISTENER = re.compile(r"(?P<name>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]{1,10})")
LOOPBACK = re.compile(r"localhost|127(\.[0-9]+){3}|::1")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
META_ADDRESSES = ("0.0.0.0", "::")
PORT_MAX = 65_535


def get_listener_setting(settings: Settings, name: str, listener: str, mechanism: str | None = None) -> Any:
    """Return the typed value of a setting for a listener, or for a mechanism of it. Raises SettingsError."""
    own = f"listener.name.{listener.lower()}."
    prefixes = (own,) if mechanism is None else (f"{own}{mechanism.lower()}.", own)
    for prefix in prefixes:
        value = settings.get_value(prefix + name)
        if value is not None:
            return _parse_listener_value(name, prefix + name, value)
    return settings.get_value(name)


def _parse_listener_value(name: str, full_name: str, value: Any) -> Any:
    """Return the value with the type of the setting `name`, if that of the prefixed `full_name` is not known."""
    if get_broker_setting_declaration(full_name).type is not ConfigType.UNKNOWN:
        return value
    try:
        return parse_setting_value(get_broker_setting_declaration(name), full_name, value)
    except InvalidValue as error:
        raise SettingsError(str(error)) from None


class Listener(NamedTuple):
    """An address to listen on.

    `host` is empty for all addresses, `port` 0 for any free one. `advertised_host` is empty for this machine's own
    name, `advertised_port` 0 for the port that was bound.
    """

    name: str
    security_protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def has_tls(self) -> bool:
        """Return whether its clients use TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def requires_sasl(self) -> bool:
        """Return whether its clients must first authenticate with SASL."""
        return self.security_protocol in SASL_PROTOCOLS


def make_broker_listeners(settings: Settings, *, all_advertised: bool = True) -> tuple[Listener, ...]:
    """Return the listeners to open, in the order in which they are given. Raises SettingsError.

    `all_advertised` is whether each must be advertised; one that was added at run time is not.
    """
    protocols = _parse_protocol_map(settings["listener.security.protocol.map"])
    controllers = {name.upper() for name in settings["controller.listener.names"] or ()}
    opened = _parse_listener_endpoints("listeners", settings["listeners"])
    advertised = _parse_listener_endpoints("advertised.listeners", settings["advertised.listeners"] or ())
    _check_ports_distinct(opened)
    clients = {name: endpoint for name, endpoint in opened.items() if name not in controllers}
    if not clients:
        raise SettingsError("listeners has no listener for clients")
    _check_advertised_listeners(opened, clients if all_advertised else {}, advertised)
    of_brokers = settings["inter.broker.listener.name"]
    if of_brokers and of_brokers.upper() not in (advertised or clients):
        raise SettingsError(f"inter.broker.listener.name: {of_brokers} is not among the listeners that are advertised")
    return tuple(_make_listener(name, clients[name], advertised, protocols) for name in clients)


def list_controller_listeners(settings: Settings) -> tuple[str, ...]:
    """Return the names in `listeners` that belong to a KRaft controller, and are not opened."""
    controllers = {name.upper() for name in settings["controller.listener.names"] or ()}
    return tuple(name for name in _parse_listener_endpoints("listeners", settings["listeners"]) if name in controllers)


def list_reachable_listeners_without_authentication(settings: Settings) -> tuple[Listener, ...]:
    """Return the listeners that other machines can reach without authentication."""
    return tuple(
        listener
        for listener in make_broker_listeners(settings)
        if not (LOOPBACK.fullmatch(listener.host) or listener.requires_sasl)
        and not (listener.has_tls and get_listener_setting(settings, "ssl.client.auth", listener.name) == "required")
    )


def shift_listeners_to_node(listeners: tuple[Listener, ...], index: int) -> tuple[Listener, ...]:
    """Return the listeners of the node with this index: `index` is added to every port that is not 0.

    Raises SettingsError for a port above 65535.
    """
    return tuple(
        listener._replace(
            port=_shift_port(listener.port, index), advertised_port=_shift_port(listener.advertised_port, index)
        )
        for listener in listeners
    )


def shift_settings_to_node(settings: Settings, node_id: int, rack: str | None) -> Settings:
    """Return the static settings of one of several nodes in this process: with its own id, rack and ports."""
    texts = settings.static_texts
    index = node_id - settings["node.id"]
    if index:
        texts["node.id"] = texts["broker.id"] = str(node_id)
        for name in ("listeners", "advertised.listeners"):
            if settings[name]:
                controllers = list_controller_listeners(settings)
                texts[name] = ",".join(
                    _shift_ports_in_listeners_text(text, index, controllers) for text in settings[name]
                )
    if rack is not None:
        texts["broker.rack"] = rack
    return settings if texts == settings.static_texts else Settings(texts)


def _shift_ports_in_listeners_text(text: str, distance: int, controllers: Collection[str]) -> str:
    """Return a listener `NAME://host:port` with `distance` added to its port; one of `controllers` as it is."""
    match = LISTENER.fullmatch(text)
    if match is None or match["name"].upper() in controllers:
        return text
    return f"{text[: match.start('port')]}{_shift_port(int(match['port']), distance)}"


def _shift_port(port: int, distance: int) -> int:
    if port == 0:
        return 0
    if port + distance > PORT_MAX:
        raise SettingsError(f"there is no port {port + distance} for a further node: the highest is {PORT_MAX}")
    return port + distance


class _Endpoint(NamedTuple):
    text: str
    host: str
    port: int


def _parse_listener_endpoints(setting: str, texts: tuple[str, ...]) -> dict[str, _Endpoint]:
    """Return the endpoints of a setting by listener name, in capitals as Kafka compares them."""
    endpoints: dict[str, _Endpoint] = {}
    for text in texts:
        match = LISTENER.fullmatch(text)
        if match is None:
            raise SettingsError(f"{setting}: {text!r} is not of the form NAME://host:port")
        name, port = match["name"].upper(), int(match["port"])
        if not 0 <= port <= PORT_MAX:
            raise SettingsError(f"{setting}: {text!r} has no port between 0 and {PORT_MAX}")
        if name in endpoints:
            raise SettingsError(f"{setting}: each listener must have a different name, and {name} is there twice")
        endpoints[name] = _Endpoint(text, match["host"], port)
    return endpoints


def _parse_protocol_map(text: str) -> dict[str, str]:
    """Return `NAME:PROTOCOL,...` as a dict, names in capitals."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in pair.rpartition(":"))
        if not separator or protocol not in PROTOCOLS:
            raise SettingsError(f"listener.security.protocol.map: {pair!r} is not of the form NAME:PROTOCOL")
        protocols[name] = protocol
    return protocols


def _check_advertised_listeners(
    opened_endpoints: dict[str, _Endpoint],
    client_endpoints: dict[str, _Endpoint],
    advertised_endpoints: dict[str, _Endpoint],
) -> None:
    """Check that what is advertised is opened, as Kafka does, and also that each listener for clients is advertised."""
    strangers = [name for name in advertised_endpoints if name not in opened_endpoints]
    if strangers:
        raise SettingsError(f"advertised.listeners: {', '.join(strangers)} is not among listeners")
    missing = [name for name in client_endpoints if name not in advertised_endpoints]
    if advertised_endpoints and missing:
        raise SettingsError(f"advertised.listeners: without {', '.join(missing)} no client could use that listener")


def _check_ports_distinct(opened_endpoints: dict[str, _Endpoint]) -> None:
    """Check that two listeners share a port only if one is IPv4 and the other IPv6 (KIP-797)."""
    taken: dict[int, list[_Endpoint]] = {}
    for endpoint in opened_endpoints.values():
        taken.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in taken.items():
        families = {":" in endpoint.host for endpoint in sharing if endpoint.host}
        if port and len(sharing) > 1 and not (len(sharing) == len(families) == 2):
            raise SettingsError(f"listeners: {' and '.join(endpoint.text for endpoint in sharing)} have the same port")


def _make_listener(
    name: str, endpoint: _Endpoint, advertised_endpoints: dict[str, _Endpoint], protocols: dict[str, str]
) -> Listener:
    protocol = protocols.get(name)
    if protocol is None:
        raise SettingsError(f"listeners: {name} has no protocol in listener.security.protocol.map")
    address = advertised_endpoints.get(name, endpoint)
    if address.host in META_ADDRESSES:
        raise SettingsError(
            f"{address.text} cannot be advertised, as no client can connect to {address.host}: set advertised.listeners"
        )
    return Listener(name, protocol, endpoint.host, endpoint.port, address.host, address.port)
