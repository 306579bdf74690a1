"""A process that serves a proxy until a signal: it prints and records what passes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.addresses import HostPort
from minibroker.broker.process import make_event_of_stop_signals, serve_and_get_exit_status, wait_for_stop_event
from minibroker.proxy.flows import GATHERED_BYTES, ExchangeRecording, encode_exchange_in_pieces, encode_file_header
from minibroker.proxy.pcap_writer import PacketWriter, make_pcap_header
from minibroker.proxy.proxy import Proxy
from minibroker.testing.seen.exchange import Exchange

log = logging.getLogger("minibroker.proxy")


class ProxyOptions(NamedTuple):
    """The options of a user. Exchanges that `shows` accepts are printed, None stands for none of them."""

    announce: Callable[[str], None]
    shows: Callable[[Exchange], bool] | None = None
    faults: Path | None = None
    flows: Path | None = None
    packets: Path | None = None
    explorer: HostPort | None = None
    control: HostPort | None = None
    token: str | None = None


def run_proxy(proxy: Proxy, options: ProxyOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError, SettingsError, FaultError, OSError."""
    if options.faults is not None:
        proxy.faults.load(options.faults)
    with contextlib.ExitStack() as files:
        recordings = _open_recordings(proxy, options, files)
        printing = None if options.shows is None else ExchangeRecording(sys.stdout.buffer, b"", _format_exchange_line)
        if printing is not None:
            files.callback(printing.close)
        if options.explorer is None and options.control is None:
            proxy.journal.set_limits(0, 0)  # nobody reads it: each exchange is reported when it ends
        if recordings or printing is not None or options.control is not None:
            proxy.journal.on()
        if recordings or printing is not None:
            proxy.journal.when_ended.append(_make_exchange_listener(proxy, recordings, printing, options.shows))
        serve_and_get_exit_status(_serve_proxy(proxy, options))
        left_out = sum(each.left_out for each in recordings)
        if left_out:
            log.warning("%d exchanges are not in the files, which could not be written as fast", left_out)


async def _serve_proxy(proxy: Proxy, options: ProxyOptions) -> None:
    stop = make_event_of_stop_signals()
    async with proxy, contextlib.AsyncExitStack() as serving:
        proxies = f"minibroker proxies {proxy.upstream} on {proxy.bootstrap_servers}"
        options.announce(proxies)
        if options.explorer is not None:
            url = await serving.enter_async_context(_serve_explorer(proxy, options.explorer))
            options.announce(f"minibroker is explored at {url}/explorer/")
        if options.control is not None:
            url = await serving.enter_async_context(_serve_control(proxy, options.control, options.token))
            options.announce(f"minibroker is controlled at {url}")
        await wait_for_stop_event(stop, proxies)


def _serve_explorer(proxy: Proxy, address: HostPort) -> contextlib.AbstractAsyncContextManager[str]:
    """Return a context manager that serves the explorer, and gives its URL."""
    from minibroker.testing.control.control_server import serve_application

    closing = asyncio.Event()

    def make_application() -> Any:
        from minibroker.explorer.explorer_routes import make_frames_app

        return make_frames_app(proxy, closing)

    return serve_application(make_application, address, closing)


def _serve_control(proxy: Proxy, address: HostPort, token: str | None) -> contextlib.AbstractAsyncContextManager[str]:
    """Return a context manager that serves the control, and gives its URL."""
    from minibroker.testing.control.control_server import serve_application

    def make_application() -> Any:
        from minibroker.testing.control.app import make_proxy_control_app

        return make_proxy_control_app(proxy, token)

    return serve_application(make_application, address, asyncio.Event())


def _open_recordings(proxy: Proxy, options: ProxyOptions, files: contextlib.ExitStack) -> list[ExchangeRecording]:
    """Create the files that the options name, and return the recordings to them. Raises OSError."""
    recordings = []
    for path, head, format in (
        (options.flows, encode_file_header(str(proxy.upstream)), encode_exchange_in_pieces),
        (options.packets, make_pcap_header(), PacketWriter().iterate_packets),
    ):
        if path is not None:
            file = files.enter_context(path.open("wb", buffering=GATHERED_BYTES))
            recording = ExchangeRecording(file, head, format)
            files.callback(recording.close)
            recordings.append(recording)
    return recordings


def _make_exchange_listener(
    proxy: Proxy,
    recordings: list[ExchangeRecording],
    printing: ExchangeRecording | None,
    is_shown: Callable[[Exchange], bool] | None,
) -> Callable[[Exchange], None]:
    """Return the function that records each exchange, and prints those that `is_shown` accepts."""

    def record_exchange(exchange: Exchange) -> None:
        server = proxy.find_server(exchange.connection)
        for recording in recordings:
            recording.add_exchange(exchange, server)
        if printing is not None and is_shown is not None and is_shown(exchange):
            printing.add_exchange(exchange, server)

    return record_exchange


def _format_exchange_line(exchange: Exchange, _: str) -> Iterable[bytes]:
    return (f"{exchange}\n".encode(),)
