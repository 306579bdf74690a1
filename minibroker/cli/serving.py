"""What `minibroker serve` does, once its options are read: from settings to a broker that runs until a signal.

This file needs no click, which takes 10 ms to import: `parse_plain_options` reads most options without it.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from minibroker.cli import variables
from minibroker.cli.log_format import start_logging_to_stderr
from minibroker.operating_system import make_temporary_directory

if TYPE_CHECKING:
    from minibroker.broker.configs.settings import Settings
    from minibroker.broker.process import ServeAlongside
    from minibroker.cli.container import ListenerAnnouncement
    from minibroker.protocol.declare import Message

LOG = logging.getLogger("minibroker")
NODES_MAX: Final = 100
LEVELS: Final = ("debug", "info", "warning", "error")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class InvalidOptions(Exception):
    """Options that no broker can be started with; the message is one line."""


def serve(
    *,
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
) -> int:
    """Serve until a signal; return the exit status. The arguments are the options of the command.

    Raises InvalidOptions, after an event in the log if that is of JSON lines.
    """
    gc.disable()
    # Imported here, so that nothing else loads a broker.
    from minibroker.broker.configs.settings import SettingsError
    from minibroker.broker.configuration import load_settings
    from minibroker.broker.lifecycle import StartError
    from minibroker.broker.process import serve_until_signal
    from minibroker.cli.container import ListenerAnnouncement

    # Imported objects never become garbage: searching them, now or while clients wait, is a waste of time.
    gc.freeze()
    gc.enable()
    start_logging_to_stderr(log_level, log_format)
    try:
        _check_no_text_is_empty(control, registry, faults, emulate, cluster_id, ready_file)
        with ExitStack() as stack:
            environment = {name: text for name, text in os.environ.items() if name not in variables.ALL}
            given = [*assignments, *_make_temporary_directory(temporary, stack)]
            settings, warnings = load_settings(properties, environment, given, kafka_variables=container)
            for warning in warnings:
                LOG.warning(warning)
            if not (security or settings["test.security"] or "").startswith("SASL"):
                _warn_of_open_listeners(settings)
            announce = ListenerAnnouncement(settings, container, ready_file)
            first: dict[str, Any] = {"first_records": _make_scram_records(scram), "first_cluster_id": cluster_id}
            first |= {"metrics_port": metrics_port, "metrics_tls": metrics_tls}
            first["until_stdin_closes"] = until_stdin_closes
            if metrics_tls:
                _check_metrics_tls(settings, metrics_port, security or settings["test.security"])
            wishes: dict[str, Any] = {"control": control, "faults": faults, "emulate": emulate, "security": security}
            wishes |= {"explorer": explorer, "users": _parse_passwords(logins)}
            if any(wishes.values()) or any(name.startswith("test.") for name in settings.static_texts):
                wishes |= {"token": control_token, "registry": registry}
                return _run_test_kit(settings, nodes, announce, **wishes, **first)
            first["serve_alongside"] = _make_registry_server(registry)
            return serve_until_signal(settings, nodes=nodes, announce=announce, **first)
    except (SettingsError, StartError, InvalidOptions) as error:
        if log_format == "json":
            LOG.critical(str(error), extra={"event": "failed"})
            sys.exit(2)
        raise InvalidOptions(str(error)) from None


def _check_no_text_is_empty(*texts: str | None) -> None:
    """Raise InvalidOptions for an option whose text is empty, as a variable is that a script has not set."""
    names = ("control", "registry", "faults", "emulate", "cluster-id", "ready-file")
    for name, text in zip(names, texts, strict=True):
        if text == "":
            raise InvalidOptions(f"--{name}: the value is empty")


def _make_temporary_directory(is_wanted: bool, stack: ExitStack) -> Iterator[str]:
    """Create a directory if it is wanted, removed when `stack` ends, and yield its setting `log.dirs=...`."""
    if not is_wanted:
        return
    directory = make_temporary_directory("minibroker-data-")
    stack.callback(_remove_directory, directory)
    yield f"log.dirs={directory}"


def _remove_directory(directory: str) -> None:
    import shutil  # here, as it is slow to import

    shutil.rmtree(directory, ignore_errors=True)


def _make_registry_server(registry: str | None) -> ServeAlongside | None:
    """Return what serves beside the broker: a schema registry at this address, or nothing."""
    if registry is None:
        return None
    from minibroker.registry.api.running_registry import serve_registry_alongside

    return partial(serve_registry_alongside, address=registry)


def _warn_of_open_listeners(settings: Settings) -> None:
    from minibroker.broker.configs.listeners import list_reachable_listeners_without_authentication

    open_listeners = ", ".join(listener.name for listener in list_reachable_listeners_without_authentication(settings))
    if open_listeners:
        LOG.warning("other machines reach %s without authentication, and may read and change all", open_listeners)


def _check_metrics_tls(settings: Settings, metrics_port: int | None, security: str | None) -> None:
    """Raise InvalidOptions for `--metrics-tls` without `--metrics-port`, or without a listener with TLS."""
    from minibroker.broker.configs.listeners import make_broker_listeners

    if metrics_port is None:
        raise InvalidOptions("--metrics-tls needs --metrics-port")
    if not (security or "").endswith("SSL") and not any(
        listener.has_tls for listener in make_broker_listeners(settings)
    ):
        raise InvalidOptions("--metrics-tls needs a listener with TLS")


def _make_scram_records(arguments: tuple[str, ...]) -> list[Message]:
    """Return the records of the users of a new cluster. Raise InvalidOptions."""
    if not arguments:
        return []
    from minibroker.broker.security.scram_arguments import ScramArgumentError, parse_scram_credential

    try:
        return [parse_scram_credential(argument) for argument in arguments]
    except ScramArgumentError as error:
        raise InvalidOptions(f"--add-scram: {error}") from None


def _parse_passwords(logins: tuple[str, ...]) -> dict[str, str]:
    """Return the passwords by name. Raise InvalidOptions."""
    if not all(name and colon for name, colon, _ in (login.partition(":") for login in logins)):
        raise InvalidOptions("--user is NAME:PASSWORD")
    return {name: password for name, _, password in (login.partition(":") for login in logins)}


def _run_test_kit(settings: Settings, nodes: int, announce: ListenerAnnouncement, **options: Any) -> int:
    """Serve with the test kit until a signal, and return the exit status. Raises InvalidOptions."""
    from minibroker.testing.serving_until_signal import ServingOptions, serve_until_signal

    try:
        return serve_until_signal(settings, nodes=nodes, announce=announce, options=ServingOptions(**options))
    except ValueError as error:  # an invalid fault, release, security or user
        raise InvalidOptions(str(error)) from None
    except OSError as error:  # of the faults file, or the control's address
        said = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        raise InvalidOptions(said) from None
