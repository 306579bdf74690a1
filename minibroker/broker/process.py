"""The process: from settings to a broker that serves, and from a signal to an orderly end.

Every mistake in the settings is found before anything is touched, and reported in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any

from minibroker.broker.assembly import Broker
from minibroker.broker.clock import SystemClock
from minibroker.broker.configs.settings import Settings
from minibroker.broker.late_imports import import_late_modules
from minibroker.broker.lifecycle import BoundByNode, BrokerDependencies, BrokerLifecycle, UncleanStop, bind_listeners
from minibroker.broker.machine import (
    collect_garbage_when_idle,
    grow_descriptor_table,
    keep_freed_memory_in_malloc,
    raise_descriptor_limit,
    reopen_closed_standard_streams,
    shorten_thread_switch_interval,
)
from minibroker.broker.monitoring.line_limit import limit_log_lines
from minibroker.broker.monitoring.measuring import bind_metrics_port, serve_metrics
from minibroker.operating_system import call_on_end_signals, make_event_loop
from minibroker.protocol.declare import Message
from minibroker.storage.files import Disk

log = logging.getLogger("minibroker")
# The start and the end, for collectors of logs: people see them, so `start_logging_to_stderr` leaves them out.
events = logging.getLogger("minibroker.events")

# What serves beside the broker while it runs, such as a schema registry; it yields the line that announces it.
ServeAlongside = Callable[[Callable[[], Broker]], contextlib.AbstractAsyncContextManager[str]]
# Gets the line about the listeners, and those about what else listens, by a name for each.
AnnounceListeners = Callable[[str, Mapping[str, str]], None]


def serve_until_signal(
    settings: Settings,
    *,
    nodes: int,
    announce: AnnounceListeners,
    metrics_port: int | None = None,
    metrics_tls: bool = False,
    first_records: Sequence[Message] = (),
    first_cluster_id: str | None = None,
    serve_alongside: ServeAlongside | None = None,
    until_stdin_closes: bool = False,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. `announce` is called once clients can connect.

    What serves beside the broker gets the function that returns it, and is announced with a line of its own, as the
    registry. With `until_stdin_closes`, the end of stdin ends the process, too.

    Metrics are served on `metrics_port` of the first listener's host; 0 is any free port, None means no metrics. With
    `metrics_tls` they are served with the TLS of the first listener that has it. The metadata of a new cluster begins
    with `first_records`, and its id is `first_cluster_id`.
    Raises StartError when an address is taken or a directory cannot be used; then nothing was changed.
    """
    metrics = metrics_port, metrics_tls
    first = first_records, first_cluster_id
    return serve_and_get_exit_status(
        _run_brokers(settings, nodes, announce, metrics, first, serve_alongside, until_stdin_closes)
    )


def serve_and_get_exit_status(serving: Coroutine[Any, Any, None]) -> int:
    """Prepare the process for serving, run `serving` in it, and return the exit status.

    The status is 1 if the disk failed when the logs were closed, so that the next start has to recover them.
    """
    reopen_closed_standard_streams()
    grow_descriptor_table(raise_descriptor_limit())
    shorten_thread_switch_interval()
    try:
        with asyncio.Runner(loop_factory=make_event_loop) as runner:
            runner.run(_serve_with_process_settings(serving))
    except UncleanStop as error:
        log.critical("the logs could not be closed, and the next start will recover them: %s", error)
        return 1
    events.info("minibroker has stopped", extra={"event": "stopped"})
    return 0


async def _serve_with_process_settings(serving: Coroutine[Any, Any, None]) -> None:
    """Run `serving` with a limit of log lines, and with garbage collection when the process is idle."""
    collecting = asyncio.create_task(collect_garbage_when_idle())
    try:
        with limit_log_lines(SystemClock(asyncio.get_running_loop())):
            await serving
    finally:
        collecting.cancel()


def make_event_of_stop_signals(until_stdin_closes: bool = False) -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, and with `until_stdin_closes` also the end of stdin."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    call_on_end_signals(loop, stop.set)
    if until_stdin_closes:
        Thread(target=_call_at_end_of_stdin, args=(loop, stop.set), daemon=True).start()
    return stop


def _call_at_end_of_stdin(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Read stdin to its end, in a thread, as not every system can wait for it in a loop; then call back in the loop."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop is closed, and the process ends already
        loop.call_soon_threadsafe(callback)


async def wait_for_stop_event(stop_event: asyncio.Event, announced_text: str) -> None:
    """Log `announced_text`, as clients can connect now, and wait for the signal."""
    events.info(announced_text, extra={"event": "started"})
    keep_freed_memory_in_malloc()
    importing = asyncio.create_task(import_late_modules())
    await stop_event.wait()
    importing.cancel()
    events.info("minibroker stops", extra={"event": "stopping"})


async def _run_brokers(
    settings: Settings,
    nodes: int,
    announce: AnnounceListeners,
    metrics_port_and_tls: tuple[int | None, bool],
    first_records_and_cluster_id: tuple[Sequence[Message], str | None],
    serve_alongside: ServeAlongside | None,
    until_stdin_closes: bool,
) -> None:
    stop, clock = make_event_of_stop_signals(until_stdin_closes), SystemClock(asyncio.get_running_loop())
    (port, over_tls), wall_ms = metrics_port_and_tls, clock.wall_ms
    with (
        bind_listeners(settings, nodes) as bound,
        bind_metrics_port(settings, port, wall_ms, over_tls=over_tls) as measured,
    ):
        if measured is None:
            dependencies = BrokerDependencies(clock, disk=Disk())
        else:
            from minibroker.broker.monitoring.measured_disk import MeasuredDisk

            dependencies = BrokerDependencies(
                clock, disk=MeasuredDisk(measured.syncs), interceptors=[measured.requests]
            )
        dependencies.first_records, dependencies.first_cluster_id = first_records_and_cluster_id
        running = BrokerLifecycle(settings, bound, dependencies)
        try:
            async with contextlib.AsyncExitStack() as serving:
                await running.serve(measured)
                await serving.enter_async_context(serve_metrics(measured, lambda: running))
                listens, others = "minibroker listens on " + ",".join(_iterate_listener_addresses(bound)), {}
                if serve_alongside is not None:
                    others["registry"] = await serving.enter_async_context(serve_alongside(lambda: running.cluster))
                announce(listens, others)
                await wait_for_stop_event(stop, listens)
        finally:
            await running.close()


def _iterate_listener_addresses(listeners_by_node: BoundByNode) -> Iterator[str]:
    for listeners in listeners_by_node.values():
        for listener in listeners:
            yield str(listener.endpoint)
