"""The process: from settings to a broker that serves, and from a signal to an orderly end.

Everything that can be wrong with the settings is found before anything is touched, and said in one line.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from minibroker.broker.clock import SystemClock
from minibroker.broker.configs.settings import Settings
from minibroker.broker.lifecycle import Bound, Running, Seams, UncleanStop, bound_listeners
from minibroker.broker.machine import (
    collect_when_idle,
    keep_freed_memory,
    raise_descriptor_limit,
    share_the_interpreter,
    spare_the_old,
)
from minibroker.broker.monitoring.line_limit import limited_lines
from minibroker.broker.monitoring.measured_disk import MeasuredDisk
from minibroker.broker.monitoring.measuring import bound_metrics, metrics_served
from minibroker.storage.files import Disk

log = logging.getLogger("minibroker")


def run(settings: Settings, *, nodes: int, announce: Callable[[str], None], metrics_port: int | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `announce` gets one line once clients can connect.

    Metrics are served on `metrics_port` of the first listener's host, 0 is any free port; None is for no metrics.
    Raises StartError when an address is taken or a directory cannot be used; then nothing was changed.
    """
    return run_until_done(_run(settings, nodes, announce, metrics_port))


def run_until_done(serving: Coroutine[Any, Any, None]) -> int:
    """Make the process one that serves, and run `serving` in it; the exit status.

    The status is 1 if the disk did not let the logs be closed, so that the next start has to recover.
    """
    import uvloop

    keep_freed_memory()
    raise_descriptor_limit()
    share_the_interpreter()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_as_a_process(serving))
    except UncleanStop as error:
        log.critical("the logs could not be closed, and the next start will recover them: %s", error)
        return 1
    return 0


async def _as_a_process(serving: Coroutine[Any, Any, None]) -> None:
    spare_the_old()
    collecting = asyncio.create_task(collect_when_idle())
    try:
        with limited_lines(SystemClock(asyncio.get_running_loop())):
            await serving
    finally:
        collecting.cancel()


def stop_signal() -> asyncio.Event:
    """What SIGTERM and SIGINT set from now on, in place of ending the process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _run(settings: Settings, nodes: int, announce: Callable[[str], None], metrics_port: int | None) -> None:
    stop, clock = stop_signal(), SystemClock(asyncio.get_running_loop())
    with bound_listeners(settings, nodes) as bound, bound_metrics(settings, metrics_port, clock.wall_ms) as measured:
        if measured is None:
            seams = Seams(clock, disk=Disk())
        else:
            seams = Seams(clock, disk=MeasuredDisk(measured.syncs), interceptors=[measured.requests])
        running = Running(settings, bound, seams)
        try:
            async with metrics_served(measured, lambda: running):
                await running.serve(measured)
                announce("minibroker listens on " + ",".join(_addresses(bound)))
                await stop.wait()
        finally:
            await running.close()


def _addresses(bound: Bound) -> Iterator[str]:
    for listeners in bound.values():
        for listener in listeners:
            yield str(listener.endpoint)
