"""Options of the commands that connect to a Kafka cluster, and a first connection that says in one line what is wrong.

Settings have Java's or librdkafka's names. Most commands use `minibroker.client`, which knows both; `produce` and
`consume` use librdkafka, for which Java's names are translated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click

from minibroker.cli.shared import CLIENT_ID, Command, assignments_option, one_line

DEFAULT_SERVER: Final = "127.0.0.1:9092"
CONNECT_TIMEOUT_MS: Final = 5000
SECURITY: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")  # the beginnings of names

# librdkafka's names of what Java's client calls otherwise; those of TLS are in `client.tls`.
RENAMED: Final = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
OAUTH_OPTIONS: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}


class Unreachable(click.ClickException):
    """No server answers, or none accepts this client. As with wrong arguments, the status is 2."""

    exit_code = 2


class Bootstrap(NamedTuple):
    """The bootstrap servers, and client settings by Kafka's names, which may be secret."""

    servers: str
    settings: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"Bootstrap({self.servers})"


def servers_of(text: str) -> str:
    """Parse comma-separated HOST:PORT. Raises click.BadParameter."""
    from minibroker.client.client_errors import SettingError
    from minibroker.client.connection_settings import addresses

    try:
        addresses(text)
    except SettingError:
        raise click.BadParameter(f"{text!r} is not HOST:PORT") from None
    return text


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--bootstrap-server`, `--command-config` and `--client`, as argument `bootstrap`."""

    @functools.wraps(command)
    def with_bootstrap(*args: Any, servers: str | None, client: tuple[tuple[str, str], ...], **kwargs: Any) -> Any:
        settings = dict(client)
        of_settings = settings.pop("bootstrap.servers", DEFAULT_SERVER)
        bootstrap = Bootstrap(servers or servers_of(of_settings), tuple(settings.items()))
        return command(*args, bootstrap=bootstrap, **kwargs)

    server = click.option(
        "--bootstrap-server",
        "servers",
        metavar="HOST:PORT",
        type=servers_of,
        help=f"Any Kafka.  [default: {DEFAULT_SERVER}]",
    )
    return server(client_setting_options(with_bootstrap))


def client_setting_options(command: Command) -> Callable[..., Any]:
    """`--command-config` and `--client`, as argument `client`: pairs of a name and a value; later ones override."""

    @functools.wraps(command)
    def with_settings(
        *args: Any, config_files: tuple[str, ...], client: tuple[tuple[str, str], ...], **kwargs: Any
    ) -> Any:
        read = [pair for file in config_files for pair in _settings_in(file)]
        return command(*args, client=(*read, *client), **kwargs)

    file = click.option(
        "--command-config",
        "config_files",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        multiple=True,
        help="Client settings, in a properties file.",
    )
    return file(assignments_option("--client", "client", "One client setting.")(with_settings))


def _settings_in(file: str) -> list[tuple[str, str]]:
    from minibroker.broker.configs.properties import MalformedProperties, parse_properties

    try:
        with open(file, encoding="utf-8") as opened:
            return [(each.key, each.value) for each in parse_properties(opened.read())]
    except (OSError, UnicodeDecodeError, MalformedProperties) as error:
        raise click.UsageError(f"--command-config {file}: {error}") from None


def require_connection(bootstrap: Bootstrap) -> None:
    """Raise click.ClickException unless a server answers this client within `CONNECT_TIMEOUT_MS`.

    librdkafka and Spark would try again for half a minute, and not say what is wrong. Settings that only they know are
    left to them; then a server only has to accept a connection.
    """
    from minibroker.client.blocking import Client
    from minibroker.client.client_errors import ClientError, SettingError
    from minibroker.client.connection_settings import ClientSettings

    security = {name: value for name, value in bootstrap.settings if name.startswith(SECURITY)}
    try:
        settings = ClientSettings({**defaults(bootstrap), **security}, CLIENT_ID)
    except SettingError:
        _require_listener(bootstrap.servers)
        return
    try:
        with Client(settings) as client:
            client.reach()
    except ClientError as error:
        raise unreachable(str(error)) from None


def defaults(bootstrap: Bootstrap) -> dict[str, str]:
    """Return the settings of our own client that `--client` may override."""
    return {
        "bootstrap.servers": bootstrap.servers,
        "socket.connection.setup.timeout.ms": str(CONNECT_TIMEOUT_MS),
    }


def unreachable(message: str) -> click.ClickException:
    """Return the error of a connection that failed, as one line."""
    return Unreachable(one_line(message))


def _require_listener(servers: str) -> None:
    import socket

    from minibroker.client.connection_settings import addresses

    problems = []
    for address in addresses(servers):
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_MS / 1000).close()
            return
        except (OSError, UnicodeError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise unreachable(f"cannot connect to {'; '.join(problems)}")


def librdkafka_config(bootstrap: Bootstrap) -> dict[str, Any]:
    """Return librdkafka's settings for a client of these servers. Raises click.ClickException if none is reachable."""
    require_connection(bootstrap)
    # Its log lines would mix with ours; the command reports failures.
    config = {"bootstrap.servers": bootstrap.servers, "log_level": 0, "client.id": CLIENT_ID}
    return {**config, **for_librdkafka(dict(bootstrap.settings))}


def for_librdkafka(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with librdkafka's names, where it knows no Java names. Raises click.ClickException."""
    from minibroker.client.tls import NAMES

    names = {names[0]: names[1] for names in NAMES if len(names) > 1} | RENAMED
    found = {names.get(name, name): value for name, value in settings.items()}
    for store in ("ssl.truststore.type", "ssl.keystore.type"):  # librdkafka reads PEM, and PKCS12 as ssl.keystore
        if found.get(store, "").strip().upper() == "PEM":
            del found[store]
            path = found.pop("ssl.keystore.location", None) if store == "ssl.keystore.type" else None
            if path is not None:
                found |= {"ssl.certificate.location": path, "ssl.key.location": path}
    module = found.pop("sasl.jaas.config", None)
    if module is not None:
        found |= _module_for_librdkafka(module)
    if "sasl.oauthbearer.token.endpoint.url" in found:
        found.setdefault("sasl.oauthbearer.method", "oidc")
    return found


def _module_for_librdkafka(text: str) -> dict[str, str]:
    """Return the options of a login module by librdkafka's names. Raises click.ClickException."""
    from minibroker.client.client_errors import SettingError
    from minibroker.client.credentials import login_module
    from minibroker.client.tokens import EXTENSION, LIFETIME, STRING_CLAIM, UNSECURED, UNSECURED_CONFIG

    try:
        module = login_module(text)
    except SettingError as error:
        raise click.UsageError(f"--client: {error}") from None
    options = module.options
    if module.name != "OAuthBearerLoginModule":
        return {f"sasl.{name}": value for name, value in options.items() if name in ("username", "password")}
    if (principal := options.get(f"{STRING_CLAIM}sub")) is not None:
        return {UNSECURED: "true", UNSECURED_CONFIG: f"principal={principal} lifeSeconds={options.get(LIFETIME, 3600)}"}
    found = {OAUTH_OPTIONS[name]: value for name, value in options.items() if name in OAUTH_OPTIONS}
    extensions = [f"{name.removeprefix(EXTENSION)}={options[name]}" for name in options if name.startswith(EXTENSION)]
    return found | ({"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {})
