"""`minibroker serve`: reads settings and runs a broker.

If the broker cannot start, it says why in one line on stderr, changes nothing, and exits with status 2.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from minibroker.cli import variables
from minibroker.cli.log_format import FORMATS
from minibroker.cli.serving import LEVELS, NODES_MAX, PROTOCOLS, InvalidOptions
from minibroker.cli.serving import serve as serve_until_signal
from minibroker.cli.shared import is_on_the_command_line, make_names_completer


def _print_settings(context: click.Context, _: click.Parameter, is_requested: bool) -> None:
    """Print the settings and exit, if `--help-settings` was given."""
    if not is_requested:
        return
    from minibroker.cli.settings_help import format_help

    click.echo(format_help(), nl=False)
    context.exit()


@click.command()
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path())
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="One setting; can be repeated.",
    shell_complete=make_names_completer("broker_settings"),
)
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    default=1,
    show_default=True,
    help="The number of brokers in the process.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve Prometheus metrics on this port of the first listener's host; 0 for any free port.",
)
@click.option(
    "--metrics-tls",
    is_flag=True,
    help="Serve the metrics over TLS, with the certificate of the first listener that has one.",
)
@click.option("--control", metavar="[HOST:]PORT", help="Serve the test kit over HTTP here, by default on 127.0.0.1.")
@click.option(
    "--control-token",
    metavar="TOKEN",
    envvar=variables.TOKEN,
    help="The token that its clients must send; needed if other machines may connect.",
)
@click.option(
    "--explorer",
    is_flag=True,
    help="Serve a page that shows all requests, topics, groups and files, where the control is, or on any free port.",
)
@click.option("--registry", metavar="[HOST:]PORT", help="Serve a schema registry here, by default on 127.0.0.1.")
@click.option("--faults", type=click.Path(), help="Load faults from this YAML file.")
@click.option("--emulate", metavar="RELEASE", help="Answer like this release of Apache Kafka, from 0.8.2 to 4.4.")
@click.option(
    "--security",
    type=click.Choice(PROTOCOLS),
    help="The protocol of the listener PLAINTEXT, with certificates and users of the test kit; test.security.",
)
@click.option("--user", "logins", metavar="NAME:PASSWORD", multiple=True, help="A user of --security; can be repeated.")
@click.option(
    "--add-scram",
    "scram",
    metavar="CREDENTIAL",
    multiple=True,
    help="A user of a new cluster, as SCRAM-SHA-256=[name=alice,password=...]; can be repeated.",
)
@click.option("--cluster-id", metavar="ID", help="The id of a new cluster, instead of a random one.")
@click.option(
    "--ready-file",
    type=click.Path(),
    help="Write this file once clients can connect: the address of each listener, then each other one with its name.",
)
@click.option(
    "--until-stdin-closes",
    is_flag=True,
    help="Also end when stdin does, as a pipe ends with the process that holds its other end.",
)
@click.option(
    "--temporary", is_flag=True, help="Keep the data in a new directory that is removed at the end, not in log.dirs."
)
@click.option(
    "--container",
    is_flag=True,
    help="Take the place of Kafka in a container: read variables such as KAFKA_LOG_DIRS, and print Kafka's lines.",
)
@click.option(
    "--help-settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_settings,
    help="List the settings.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="The least severe messages to write to stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="The format of log lines; json writes an object per line.",
)
def serve(**options: Any) -> None:
    """Serve on 127.0.0.1:9092, with the data in ./minibroker-data, until SIGTERM or Ctrl-C.

    Settings have Apache Kafka's names. They come from the file, then from environment variables
    (MINIBROKER_LOG_SEGMENT_BYTES is log.segment.bytes), then from --set; later ones override.

    \b
    Example:
        minibroker serve --set listeners=PLAINTEXT://127.0.0.1:0 --set log.dirs=/tmp/data
    """
    if options["control"] is None and not options["explorer"] and is_on_the_command_line("control_token"):
        raise click.UsageError("--control-token needs --control or --explorer")
    try:
        status = serve_until_signal(**options)
    except InvalidOptions as error:
        raise click.UsageError(str(error)) from None
    sys.exit(status)
