"""Options of the commands that connect to a Kafka cluster, and a first connection that says in one line what is wrong.

Settings have Java's or librdkafka's names; `minibroker.client` knows both.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from math import isnan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli import variables
from minibroker.cli.shared import CLIENT_ID, Command, make_assignments_option, suggest_file_commands
from minibroker.protocol.legible import join_lines

if TYPE_CHECKING:
    from minibroker.client.blocking import BlockingNetwork, Client

DEFAULT_PORT: Final = 9092
DEFAULT_SERVER: Final = f"127.0.0.1:{DEFAULT_PORT}"
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 86_400.0
LEVELS: Final = ("debug", "info")
SECURITY: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.ca.")  # the beginnings of names


class ServerUnreachable(click.ClickException):
    """No server answers, or none accepts this client. As with wrong arguments, the status is 2."""

    exit_code = 2


class Bootstrap(NamedTuple):
    """The bootstrap servers, client settings by Kafka's names, which may be secret, and how to connect.

    `timeout_s` is that of `--timeout`, None without it. `is_traced` is true to show each request on stderr.
    """

    servers: str
    settings: tuple[tuple[str, str], ...]
    timeout_s: float | None = None
    is_traced: bool = False

    def __repr__(self) -> str:
        return f"Bootstrap({self.servers})"

    @property
    def connect_timeout_s(self) -> float:
        """How long to try to connect."""
        return CONNECT_TIMEOUT_S if self.timeout_s is None else self.timeout_s

    @property
    def request_timeout_s(self) -> float:
        """How long to wait for an answer."""
        return REQUEST_TIMEOUT_S if self.timeout_s is None else self.timeout_s


def add_default_ports(text: str) -> str:
    """Return HOST or HOST:PORT, or several separated by commas, with Kafka's port where none is given."""

    def add_port_if_missing(server: str) -> str:
        if server.rpartition("]")[2].count(":") == 1 or not server:
            return server
        is_ipv6 = ":" in server and "[" not in server
        return f"[{server}]:{DEFAULT_PORT}" if is_ipv6 else f"{server}:{DEFAULT_PORT}"

    return ",".join(add_port_if_missing(server.strip()) for server in text.split(","))


def parse_servers(text: str) -> str:
    """Parse HOST[:PORT], several separated by commas; return them with ports. Raises click.BadParameter."""
    from minibroker.client.client_errors import SettingError
    from minibroker.client.connection_settings import parse_addresses

    servers = add_default_ports(text)
    scheme, separator, rest = text.partition("://")
    if "/" in text and not separator:
        raise click.BadParameter(f"{text!r} is not HOST:PORT; {suggest_file_commands(text)}")
    try:
        parse_addresses(servers)
    except SettingError:
        advice = f"; leave out {scheme}://" if separator and rest else ""
        raise click.BadParameter(f"{text!r} is not HOST:PORT{advice}") from None
    return servers


def get_default_servers() -> str | None:
    """Return the servers of `MINIBROKER_BOOTSTRAP_SERVER`, None without it. Raises click.UsageError."""
    text = os.environ.get(variables.SERVER)
    try:
        return parse_servers(text) if text else None
    except click.BadParameter as error:
        raise click.UsageError(f"{variables.SERVER}: {error.message}") from None


def add_client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap-server`, `--command-config`, `--client` and `--log-level`, as one argument `bootstrap`."""

    @functools.wraps(command)
    def call_with_bootstrap(
        *args: Any,
        servers: str | None,
        client: tuple[tuple[str, str], ...],
        log_level: str,
        connect_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Any:
        bootstrap = make_bootstrap(servers, client, connect_timeout_s, log_level)
        return command(*args, bootstrap=bootstrap, **kwargs)

    server = make_server_option(f"A broker of any Kafka.  [env var: {variables.SERVER}; default: {DEFAULT_SERVER}]")
    return server(add_client_setting_options(add_log_level_option(call_with_bootstrap)))


def add_connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `add_client_options`, and `--timeout`, as argument `bootstrap`."""
    return add_timeout_option(add_client_options(command))


def make_server_option(help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--bootstrap-server`, as argument `servers`."""
    return click.option("--bootstrap-server", "servers", metavar="HOST[:PORT]", type=parse_servers, help=help)


class Seconds(click.FloatRange):
    """A time in seconds, at most a day."""

    def __init__(self, shortest_s: float = 0.001) -> None:
        super().__init__(shortest_s, LONGEST_TIMEOUT_S)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):  # which is in no range, and outside of none
            self.fail(f"{value} is not a number.", param, ctx)
        return seconds


def add_timeout_option(command: Command) -> Command:
    """Add `--timeout`, as argument `connect_timeout_s`."""
    return click.option(
        "--timeout",
        "connect_timeout_s",
        metavar="SECONDS",
        type=Seconds(),
        help=f"When to give up.  [default: {CONNECT_TIMEOUT_S:g} to connect, {REQUEST_TIMEOUT_S:g} for an answer]",
    )(command)


def add_log_level_option(command: Command) -> Command:
    """Add `--log-level`, as argument `log_level`."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="debug shows each request and answer on stderr, without contents.",
    )(command)


def make_bootstrap(
    servers: str | None, client: tuple[tuple[str, str], ...], timeout_s: float | None, log_level: str
) -> Bootstrap:
    """Return servers and settings of options; servers default to `bootstrap.servers`, a variable, or 127.0.0.1:9092."""
    settings = dict(client)
    of_settings = settings.pop("bootstrap.servers", None)
    chosen = servers or (parse_servers(of_settings) if of_settings else get_default_servers()) or DEFAULT_SERVER
    return Bootstrap(chosen, tuple(settings.items()), timeout_s, log_level == "debug")


def add_client_setting_options(command: Command) -> Callable[..., Any]:
    """Add `--command-config` and `--client`, as argument `client`: pairs of name and value; later ones override."""

    @functools.wraps(command)
    def call_with_client_settings(
        *args: Any, config_files: tuple[str, ...], client: tuple[tuple[str, str], ...], **kwargs: Any
    ) -> Any:
        return command(*args, client=merge_client_settings(config_files, client), **kwargs)

    file = click.option(
        "--command-config",
        "config_files",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        multiple=True,
        help="Client settings, in a properties file.",
    )
    return file(make_assignments_option("--client", "client", "One client setting.")(call_with_client_settings))


def merge_client_settings(files: tuple[str, ...], client: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the settings of files, then those of `--client`, which override them. Raises click.UsageError."""
    return (*(pair for file in files for pair in _read_properties_file(file)), *client)


def _read_properties_file(file: str) -> list[tuple[str, str]]:
    from minibroker.broker.configs.properties import MalformedProperties, parse_java_properties

    try:
        with open(file, encoding="utf-8") as opened:
            return [(each.key, each.value) for each in parse_java_properties(opened.read())]
    except (OSError, UnicodeDecodeError, MalformedProperties) as error:
        raise click.UsageError(f"--command-config {file}: {error}") from None


def make_client(bootstrap: Bootstrap) -> Client:
    """Return a client for these servers, not connected yet. Raises `SettingError`."""
    from minibroker.client.blocking import Client
    from minibroker.client.connection_settings import ClientSettings

    settings = ClientSettings({**get_default_client_settings(bootstrap), **dict(bootstrap.settings)}, CLIENT_ID)
    return Client(settings, make_network(bootstrap.is_traced), patience_s=bootstrap.connect_timeout_s)


def make_network(is_traced: bool) -> BlockingNetwork | None:
    """Return a network that prints each request to stderr, or None for the client's default one."""
    if not is_traced:
        return None
    from minibroker.cli.log_format import format_debug_line
    from minibroker.client.tracing import TracedNetwork

    return TracedNetwork(lambda text: click.echo(format_debug_line("minibroker.client", text), err=True))


def require_connection(bootstrap: Bootstrap) -> None:
    """Raise click.ClickException unless a server answers this client within the timeout.

    Spark would try again for half a minute, and not say what is wrong. Settings that only it knows are left to it; then
    a server only has to accept a connection.
    """
    from minibroker.client.client_errors import ClientError, SettingError

    security = tuple(pair for pair in bootstrap.settings if pair[0].startswith(SECURITY))
    try:
        client = make_client(bootstrap._replace(settings=security))
    except SettingError:
        _require_open_port(bootstrap)
        return
    try:
        with client:
            client.connect_to_any_node()
    except ClientError as error:
        raise make_unreachable_error(bootstrap, str(error)) from None


def get_default_client_settings(bootstrap: Bootstrap) -> dict[str, str]:
    """Return the settings of our own client that `--client` may override."""
    connect_ms, request_ms = (
        str(max(1, round(timeout_s * 1000))) for timeout_s in (bootstrap.connect_timeout_s, bootstrap.request_timeout_s)
    )
    return {
        "bootstrap.servers": bootstrap.servers,
        "socket.connection.setup.timeout.ms": connect_ms,
        "request.timeout.ms": request_ms,
        "default.api.timeout.ms": request_ms,
    }


def make_unreachable_error(bootstrap: Bootstrap, message: str) -> click.ClickException:
    """Return the error of a connection that failed, as one line, with what to do."""
    if bootstrap.servers in (DEFAULT_SERVER, f"localhost:{DEFAULT_PORT}"):
        message += "; start a broker with 'minibroker serve', or name another with --bootstrap-server"
    elif "no answer" in message:
        message += f"; 'minibroker doctor {bootstrap.servers}' may say why"
    return ServerUnreachable(join_lines(message))


def _require_open_port(bootstrap: Bootstrap) -> None:
    """Raise click.ClickException unless a bootstrap server accepts a TCP connection."""
    from minibroker.client.blocking import connect_socket
    from minibroker.client.connection_settings import parse_addresses

    problems = []
    for address in parse_addresses(bootstrap.servers):
        try:
            connect_socket(*address, bootstrap.connect_timeout_s).close()
            return
        except (OSError, UnicodeError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise make_unreachable_error(bootstrap, f"cannot connect to {'; '.join(problems)}")
