"""`minibroker doctor`: say what is wrong with a connection to any Kafka, and what to change."""

from __future__ import annotations

import json
import sys
import textwrap

import click

from minibroker.cli.connecting import (
    CONNECT_TIMEOUT_S,
    DEFAULT_SERVER,
    Seconds,
    add_client_setting_options,
    add_log_level_option,
    get_default_servers,
    make_network,
    parse_servers,
)
from minibroker.cli.shared import NamedCommand, make_json_option
from minibroker.protocol.legible import format_readable

COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}
INDENT = " " * 9


@click.command(cls=NamedCommand)
@click.argument("address", metavar="[HOST[:PORT]]", required=False)
@add_client_setting_options
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Seconds(0.1),
    default=CONNECT_TIMEOUT_S,
    show_default=True,
    help="For each step.",
)
@add_log_level_option
@make_json_option("Print a JSON object a line.")
def doctor(
    address: str | None, client: tuple[tuple[str, str], ...], timeout_s: float, log_level: str, as_json: bool
) -> int:
    """Find out why clients cannot use a Kafka server.

    Looks up the name, connects, finds out what speaks on the port, logs in, asks for the cluster's nodes, and connects
    to the address that each of them advertises. Nothing is written. The status is 1 if there is a problem.

    \b
    Example:
        minibroker doctor
        minibroker doctor kafka.example.com:9093 --client security.protocol=SSL
    """
    from minibroker.cli.doctor.checks import compare_cluster_ids, examine_server
    from minibroker.client.blocking import BlockingNetwork
    from minibroker.client.client_errors import SettingError
    from minibroker.client.connection_settings import Address, ClientSettings, parse_addresses

    settings = dict(client)
    text = address or settings.get("bootstrap.servers") or get_default_servers() or DEFAULT_SERVER
    try:
        servers = parse_addresses(parse_servers(text))
        ClientSettings({**settings, "bootstrap.servers": str(servers[0])})
    except click.BadParameter as error:
        raise click.UsageError(error.message) from None
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    has_problem = False
    clusters: dict[Address, str] = {}
    sockets = make_network(log_level == "debug") or BlockingNetwork()
    each_server = ((str(server), examine_server(server, settings, timeout_s, sockets, clusters)) for server in servers)
    for server, findings in (*each_server, (text, compare_cluster_ids(clusters))):
        for finding in findings:
            has_problem = has_problem or finding.kind == "problem"
            if as_json:
                click.echo(json.dumps({"server": server, **finding._asdict()}))
            else:
                _print_finding(finding.kind, finding.text, finding.advice)
            sys.stdout.flush()  # a step may take seconds
    return int(has_problem)


def _print_finding(kind: str, text: str, advice: str | None) -> None:
    # The texts may have names and messages of the server, which must not control the terminal.
    click.echo(f"{click.style(f'{kind:<8}', fg=COLORS[kind])} {format_readable(text.encode())}")
    if advice is not None:
        click.echo(
            textwrap.fill(format_readable(advice.encode()), 100, initial_indent=INDENT, subsequent_indent=INDENT)
        )
