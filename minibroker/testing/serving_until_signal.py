"""A process that serves the test kit's broker until a signal: `serve --control`, `--registry`, `--faults` and others.

`broker/process` serves a plain broker; this one can be reset, frozen and made to fail.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minibroker.broker.clock import SystemClock
from minibroker.broker.configs.settings import Settings
from minibroker.broker.lifecycle import StartError, take_inherited_sockets
from minibroker.broker.monitoring.measuring import bind_metrics_port, serve_metrics
from minibroker.broker.process import (
    AnnounceListeners,
    make_event_of_stop_signals,
    serve_and_get_exit_status,
    wait_for_stop_event,
)
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message
from minibroker.testing.broker import Broker
from minibroker.testing.embedded.given_settings import suppress_settings_warnings

ANY_PORT = "0"


class ServingOptions(NamedTuple):
    """The options of a user for the process."""

    control: str | None = None
    explorer: bool = False
    token: str | None = None
    registry: str | None = None
    faults: str | None = None
    emulate: str | None = None
    security: str | None = None
    users: Mapping[str, str] | None = None
    metrics_port: int | None = None
    metrics_tls: bool = False
    first_records: Sequence[Message] = ()
    first_cluster_id: str | None = None
    until_stdin_closes: bool = False


def serve_until_signal(settings: Settings, *, nodes: int, announce: AnnounceListeners, options: ServingOptions) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. Raises StartError, FaultError, OSError."""
    return serve_and_get_exit_status(_run_broker(settings, nodes, announce, options))


async def _run_broker(settings: Settings, nodes: int, announce: AnnounceListeners, options: ServingOptions) -> None:
    inherited = take_inherited_sockets()
    if inherited is not None and inherited.addresses:
        raise StartError("LISTEN_FDS: only a broker without the test kit takes over sockets, as the kit closes its own")
    stop = make_event_of_stop_signals(options.until_stdin_closes)
    address = None
    if options.control is not None or options.explorer:
        from minibroker.testing.control.control_server import parse_address, serve_control

        address = parse_address(options.control or ANY_PORT, options.token)
    broker = _make_broker(settings, nodes, options)
    async with contextlib.AsyncExitStack() as serving:
        clock = SystemClock(asyncio.get_running_loop())  # the machine's time, which the control cannot move
        measured = serving.enter_context(
            bind_metrics_port(settings, options.metrics_port, clock.wall_ms, over_tls=options.metrics_tls)
        )
        if measured is not None:
            broker.set_measurements(measured)
        await serving.enter_async_context(broker)
        await serving.enter_async_context(
            serve_metrics(measured, lambda: broker.running if broker.is_running else None)
        )
        url = None
        if address is not None:
            broker.journal.on()
            url = await serving.enter_async_context(
                serve_control(broker, address, options.token, explorer=options.explorer)
            )
        listens, others = f"minibroker listens on {broker.bootstrap_servers}", {}
        if options.registry is not None:
            from minibroker.registry.api.running_registry import make_registry_line

            others["registry"] = make_registry_line(broker.registry_url)
        if options.control is not None:
            others["control"] = f"minibroker is controlled at {url}"
        if options.explorer:
            others["explorer"] = f"minibroker is explored at {url}/explorer/"
        announce(listens, others)
        await wait_for_stop_event(stop, listens)


def _make_broker(settings: Settings, nodes: int, options: ServingOptions) -> Broker:
    """Return the broker, not started yet. Raises StartError, ValueError."""
    if len(settings.log_directories) > 1:
        raise StartError("--control, --explorer and --faults need a single log directory, and log.dirs names several")
    texts: dict[str, Any] = dict(settings.static_texts)
    if options.security or settings["test.security"]:
        texts.setdefault("listeners", settings["listeners"])  # whose protocol changes
    with suppress_settings_warnings():
        broker = Broker(
            texts,
            nodes=nodes,
            directory=Path(settings.log_directories[0]),
            emulate=options.emulate,
            security=options.security,
            users=options.users,
            registry=options.registry or False,
        )
    # Those of a plain process: what tests want is not what its user has given.
    broker.defaults = {}
    if broker.emulated is not None:
        from minibroker.testing.emulation.releases import list_settings_of_release

        broker.defaults = list_settings_of_release(broker.emulated)
    broker.first_records, broker.first_cluster_id = options.first_records, options.first_cluster_id
    if options.faults is not None:
        broker.faults.load(options.faults)
    return broker
