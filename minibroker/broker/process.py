"""The process: from settings to a broker that serves, and from a signal to an orderly end.

Everything that can be wrong with the settings is found before anything is touched, and said in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from minibroker.broker.cleaner_statistics import CleanerStatistics
from minibroker.broker.clock import SystemClock
from minibroker.broker.listeners import Listener, broker_listeners
from minibroker.broker.machine import keep_freed_memory, raise_descriptor_limit, share_the_interpreter
from minibroker.broker.measured_disk import MeasuredDisk
from minibroker.broker.request_statistics import RequestStatistics
from minibroker.broker.running import Bound, Running, Seams, StartError, UncleanStop, bound_listeners
from minibroker.broker.server import BindError, BoundListener, bind
from minibroker.broker.settings import Settings
from minibroker.storage.files import Disk

log = logging.getLogger("minibroker")


class Measurements(NamedTuple):
    """What is counted for the metrics, and where those are served."""

    bound: BoundListener
    requests: RequestStatistics
    cleaner: CleanerStatistics
    disk: MeasuredDisk


def run(settings: Settings, *, nodes: int, announce: Callable[[str], None], metrics_port: int | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `announce` gets one line once clients can connect.

    Metrics are served on `metrics_port` of the first listener's host, 0 is any free port; None is for no metrics.
    The status is 1 if the disk did not let the logs be closed, so that the next start has to recover.
    Raises StartError when an address is taken or a directory cannot be used; then nothing was changed.
    """
    keep_freed_memory()
    raise_descriptor_limit()
    share_the_interpreter()
    try:
        with asyncio.Runner(loop_factory=_event_loop()) as runner:
            return runner.run(_run(settings, nodes, announce, metrics_port))
    except UncleanStop as error:
        log.critical("the logs could not be closed, and the next start will recover them: %s", error)
        return 1


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _run(settings: Settings, nodes: int, announce: Callable[[str], None], metrics_port: int | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with bound_listeners(settings, nodes) as bound, _bound_metrics(settings, metrics_port) as metrics:
        seams = Seams(SystemClock(loop), disk=Disk() if metrics is None else metrics.disk)
        if metrics is not None:
            seams = replace(seams, interceptors=[metrics.requests])
        running = Running(settings, bound, seams)
        try:
            async with _metrics_served(running, metrics):
                await running.serve(None if metrics is None else metrics.cleaner)
                announce("minibroker listens on " + ",".join(_addresses(bound)))
                await stop.wait()
        finally:
            await running.close()
    return 0


@contextlib.asynccontextmanager
async def _metrics_served(running: Running, measured: Measurements | None) -> AsyncIterator[None]:
    """Serve the metrics inside the block, if they are asked for."""
    if measured is None:
        yield
        return
    # Imported only when they are asked for: the library would double the time to start.
    from minibroker.broker.metrics import Observed, exposition
    from minibroker.broker.metrics_server import MetricsServer

    cluster = running.cluster
    started_s = cluster.clock.wall_ms() / 1000
    observed = Observed(cluster, running.server, measured.requests, measured.disk.syncs, measured.cleaner, started_s)
    metrics = MetricsServer(lambda: exposition(observed))
    await metrics.serve(measured.bound)
    try:
        yield
    finally:
        await metrics.close()


def _addresses(bound: Bound) -> Iterator[str]:
    for listeners in bound.values():
        for listener in listeners:
            yield str(listener.endpoint)


@contextlib.contextmanager
def _bound_metrics(settings: Settings, port: int | None) -> Iterator[Measurements | None]:
    """Take the address for the metrics, if they are asked for; gives it back in the end."""
    if port is None:
        yield None
        return
    host = broker_listeners(settings)[0].host
    try:
        bound = bind(Listener("METRICS", "HTTP", host, port, "", 0), settings)
    except BindError as error:
        raise StartError(str(error)) from None
    with bound.socket:
        yield Measurements(bound, RequestStatistics(), CleanerStatistics(), MeasuredDisk())
