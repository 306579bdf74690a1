"""`minibroker serve`: reads settings and runs a broker.

If the broker cannot start, it says why in one line on stderr, changes nothing, and exits with status 2.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from minibroker.cli.log_format import FORMATS, log_to_stderr
from minibroker.cli.shared import SERVER_VARIABLE, TOKEN_VARIABLE, completed_by, is_on_the_command_line

if TYPE_CHECKING:
    from minibroker.broker.configs.settings import Settings
    from minibroker.broker.process import Beside
    from minibroker.cli.container import Announcement
    from minibroker.protocol.declare import Message

LOG = logging.getLogger("minibroker")
LEVELS = ("debug", "info", "warning", "error")
NODES_MAX = 100
REGISTRY_VARIABLE = "MINIBROKER_REGISTRY_URL"  # of `schemas` and `consume`
NO_SETTINGS = (
    TOKEN_VARIABLE,
    SERVER_VARIABLE,
    REGISTRY_VARIABLE,
)  # variables of ours that are no settings of the broker
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _print_settings(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the settings and exit, if `--help-settings` was given."""
    if not wanted:
        return
    from minibroker.cli.settings_help import help_text

    click.echo(help_text(), nl=False)
    context.exit()


@click.command()
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path())
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="One setting; can be repeated.",
    shell_complete=completed_by("broker_settings"),
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
    envvar=TOKEN_VARIABLE,
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
def serve(
    properties: str | None,
    assignments: tuple[str, ...],
    nodes: int,
    metrics_port: int | None,
    metrics_tls: bool,
    control: str | None,
    control_token: str | None,
    explorer: bool,
    registry: str | None,
    faults: str | None,
    emulate: str | None,
    security: str | None,
    logins: tuple[str, ...],
    scram: tuple[str, ...],
    cluster_id: str | None,
    ready_file: str | None,
    until_stdin_closes: bool,
    temporary: bool,
    container: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve on 127.0.0.1:9092, with the data in ./minibroker-data, until SIGTERM or Ctrl-C.

    Settings have Apache Kafka's names. They come from the file, then from environment variables
    (MINIBROKER_LOG_SEGMENT_BYTES is log.segment.bytes), then from --set; later ones override.

    \b
    Example:
        minibroker serve --set listeners=PLAINTEXT://127.0.0.1:0 --set log.dirs=/tmp/data
    """
    gc.disable()
    # Imported here, so that --help does not load a broker.
    from minibroker.broker.configs.settings import SettingsError
    from minibroker.broker.configuration import load_settings
    from minibroker.broker.lifecycle import StartError
    from minibroker.broker.process import run
    from minibroker.cli.container import Announcement

    # Imported objects never become garbage: searching them, now or while clients wait, is a waste of time.
    gc.freeze()
    gc.enable()
    log_to_stderr(log_level, log_format)
    if control is None and not explorer and is_on_the_command_line("control_token"):
        raise click.UsageError("--control-token needs --control or --explorer")
    try:
        environment = {name: text for name, text in os.environ.items() if name not in NO_SETTINGS}
        given = [*assignments, *_temporary_directory(temporary)]
        settings, warnings = load_settings(properties, environment, given, kafka_variables=container)
        for warning in warnings:
            LOG.warning(warning)
        if not (security or settings["test.security"] or "").startswith("SASL"):
            _warn_of_strangers(settings)
        announce = Announcement(settings, container, ready_file)
        first: dict[str, Any] = {"first_records": _credentials(scram), "first_cluster_id": cluster_id}
        first |= {"metrics_port": metrics_port, "metrics_tls": metrics_tls, "until_stdin_closes": until_stdin_closes}
        if metrics_tls:
            _check_tls(settings, metrics_port, security or settings["test.security"])
        asked: dict[str, Any] = {"control": control, "faults": faults, "emulate": emulate, "security": security}
        asked |= {"explorer": explorer, "users": _passwords(logins)}
        if any(asked.values()) or any(name.startswith("test.") for name in settings.given):
            status = _run_kit(settings, nodes, announce, token=control_token, registry=registry, **asked, **first)
        else:
            status = run(settings, nodes=nodes, announce=announce, beside=_beside(registry), **first)
    except (SettingsError, StartError, click.UsageError) as error:
        reason = error.message if isinstance(error, click.UsageError) else str(error)
        if log_format == "json":
            LOG.critical(reason, extra={"event": "failed"})
            sys.exit(2)
        raise click.UsageError(reason) from None
    sys.exit(status)


def _temporary_directory(wanted: bool) -> Iterator[str]:
    """Yield the setting of a new directory, which is removed at the end of the command, if it is wanted."""
    if not wanted:
        return
    from tempfile import TemporaryDirectory

    directory = TemporaryDirectory(prefix="minibroker-data-", ignore_cleanup_errors=True)
    yield f"log.dirs={click.get_current_context().with_resource(directory)}"


def _beside(registry: str | None) -> Beside | None:
    """Return what serves beside the broker: a schema registry at this address, or nothing."""
    if registry is None:
        return None
    from minibroker.registry.api.running_registry import registry_beside

    return partial(registry_beside, address=registry)


def _warn_of_strangers(settings: Settings) -> None:
    from minibroker.broker.configs.listeners import open_to_all

    open_listeners = ", ".join(listener.name for listener in open_to_all(settings))
    if open_listeners:
        LOG.warning("other machines reach %s without authentication, and may read and change all", open_listeners)


def _check_tls(settings: Settings, metrics_port: int | None, security: str | None) -> None:
    """Raise click.UsageError if there are no metrics, or no TLS for them."""
    from minibroker.broker.configs.listeners import broker_listeners

    if metrics_port is None:
        raise click.UsageError("--metrics-tls needs --metrics-port")
    if not (security or "").endswith("SSL") and not any(listener.has_tls for listener in broker_listeners(settings)):
        raise click.UsageError("--metrics-tls needs a listener with TLS")


def _credentials(arguments: tuple[str, ...]) -> list[Message]:
    """Return the records of the users of a new cluster. Raise click.UsageError."""
    if not arguments:
        return []
    from minibroker.broker.security.scram_arguments import ScramArgumentError, scram_credential

    try:
        return [scram_credential(argument) for argument in arguments]
    except ScramArgumentError as error:
        raise click.UsageError(f"--add-scram: {error}") from None


def _passwords(logins: tuple[str, ...]) -> dict[str, str]:
    """Return the passwords by name. Raise click.UsageError."""
    if not all(name and colon for name, colon, _ in (login.partition(":") for login in logins)):
        raise click.UsageError("--user is NAME:PASSWORD")
    return {name: password for name, _, password in (login.partition(":") for login in logins)}


def _run_kit(settings: Settings, nodes: int, announce: Announcement, **wishes: Any) -> int:
    from minibroker.testing.serving_until_signal import Wishes, run

    try:
        return run(settings, nodes=nodes, announce=announce, wishes=Wishes(**wishes))
    except ValueError as error:  # an invalid fault, release, security or user
        raise click.UsageError(str(error)) from None
    except OSError as error:  # of the faults file, or the control's address
        said = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        raise click.UsageError(said) from None
