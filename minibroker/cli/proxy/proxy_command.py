"""`minibroker proxy`: stands between clients and a Kafka, and shows, records and disturbs what they say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minibroker.cli import variables
from minibroker.cli.connecting import add_client_setting_options, parse_servers
from minibroker.cli.log_format import FORMATS, start_logging_to_stderr
from minibroker.cli.shared import is_on_the_command_line, make_assignments_option, make_names_completer, print_table

if TYPE_CHECKING:
    from minibroker.proxy.proxy import Proxy

LOG = logging.getLogger("minibroker.proxy")
LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--upstream", metavar="HOST[:PORT]", required=True, type=parse_servers, help="A bootstrap server of the cluster."
)
@click.option(
    "--listen",
    metavar="[HOST]:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Where to stand for it. The other nodes get the free ports behind this one; any free ports if it is 0.",
)
@click.option("--advertised-host", metavar="HOST", help="The host that clients get, if it is not that of --listen.")
@make_assignments_option(
    "--set", "listener", "A broker's setting that begins with ssl.; with one, clients must use TLS.",
    make_names_completer("broker_settings"),
)  # fmt: skip
@add_client_setting_options
@click.option("--faults", type=click.Path(dir_okay=False, path_type=Path), help="Load faults from this YAML file.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write all exchanges to this file.")
@click.option("--pcap", type=click.Path(dir_okay=False, path_type=Path), help="Write all exchanges as packets.")
@click.option("--explorer", metavar="[HOST:]PORT", help="Show what passes in a browser on this machine.")
@click.option("--control", metavar="[HOST:]PORT", help="Serve faults and the journal over HTTP here.")
@click.option(
    "--control-token",
    metavar="TOKEN",
    envvar=variables.TOKEN,
    help="The token that clients of --control must send; needed if other machines may connect.",
)
@click.option("--api", metavar="NAME", help="Print only requests of this API, such as Fetch.")
@click.option("--client-id", metavar="ID", help="Print only requests of the clients with this id.")
@click.option("--group", metavar="GROUP", help="Print only requests that name this group.")
@click.option("--node", type=int, help="Print only requests to this node.")
@click.option("--error", metavar="NAME", help="Print only requests with this error in the answer.")
@click.option("--quiet", is_flag=True, help="Print no requests.")
@click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True,
              help="The least severe messages to write to stderr.")  # fmt: skip
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True,
              help="The format of log lines; json writes an object per line.")  # fmt: skip
def proxy(
    upstream: str,
    listen: str,
    advertised_host: str | None,
    listener: tuple[tuple[str, str], ...],
    client: tuple[tuple[str, str], ...],
    faults: Path | None,
    save: Path | None,
    pcap: Path | None,
    explorer: str | None,
    control: str | None,
    control_token: str | None,
    quiet: bool,
    log_level: str,
    log_format: str,
    **conditions: Any,
) -> None:
    """Stand between clients and any Kafka, until SIGTERM or Ctrl-C, and print what they say.

    Clients get the proxy's addresses in the place of those of the nodes; all else passes unchanged unless a fault says
    otherwise. --command-config and --client say how to connect to the cluster: with TLS, and by SASL to log in for the
    clients. At the end it prints a table of what has passed.

    \b
    Example:
        minibroker proxy --upstream kafka:9092
        minibroker proxy --upstream kafka:9092 --save session.flows --quiet
        minibroker proxy --upstream kafka:9093 --command-config client.properties --api Produce
    """
    from minibroker.broker.configs.settings import SettingsError
    from minibroker.broker.lifecycle import StartError
    from minibroker.client.client_errors import SettingError
    from minibroker.proxy.proxy import Proxy
    from minibroker.proxy.serving import ProxyOptions, run_proxy
    from minibroker.testing.control.control_server import parse_address
    from minibroker.testing.seen.journal import make_exchange_filter

    start_logging_to_stderr(log_level, log_format)
    given = {name: value for name, value in conditions.items() if value is not None}
    if quiet and given:
        raise click.UsageError(f"--quiet prints no requests, so there is nothing for --{min(given).replace('_', '-')}")
    if control is None and is_on_the_command_line("control_token"):
        raise click.UsageError("--control-token needs --control")
    try:
        shows = None if quiet else make_exchange_filter(**given)
        made = Proxy(
            upstream,
            listen,
            upstream_config=dict(client),
            listener_config=dict(listener),
            advertised_host=advertised_host,
        )
        if made.lends_sasl_login_to_others:
            LOG.warning("other machines reach the proxy without authentication, and the cluster with its login")
        page = None if explorer is None else parse_address(explorer, None, "--explorer")
        steered = None if control is None else parse_address(control, control_token)
        run_proxy(made, ProxyOptions(click.echo, shows, faults, save, pcap, page, steered, control_token))
    except (SettingsError, StartError, SettingError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    _print_statistics(made)


def _print_statistics(proxy: Proxy) -> None:
    from minibroker.protocol.errors import ErrorCode

    def get_error_name(code: int) -> str:
        return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"

    rows = []
    for key, each in sorted(proxy.statistics.by_api.items()):
        count, answered = each.requests.total(), sum(each.durations)
        versions = ", ".join(map(str, sorted(each.requests)))
        mean = f"{each.duration_ms / answered:.1f}" if answered else ""
        errors = ", ".join(f"{get_error_name(code)} {times}" for code, times in each.errors.most_common())
        title = getattr(key, "name", f"API {key}").title().replace("_", "")
        rows.append([title, versions, count, each.received_bytes, each.sent_bytes, mean, each.lost or "", errors])
    if rows:
        print_table(["api", "versions", "requests", "bytes in", "bytes out", "mean ms", "lost", "errors"], rows)
