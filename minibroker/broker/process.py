"""The process: from settings to a broker that serves, and from a signal to an orderly end.

Everything that can be wrong with the settings is found before anything is touched, and said in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from minibroker.broker import handlers
from minibroker.broker.cleaner_statistics import CleanerStatistics
from minibroker.broker.clock import SystemClock
from minibroker.broker.cluster import Cluster, Node, new_uuid
from minibroker.broker.housekeeping import Housekeeping
from minibroker.broker.listeners import Listener, broker_listeners, listeners_of_node
from minibroker.broker.machine import keep_freed_memory, raise_descriptor_limit, share_the_interpreter
from minibroker.broker.measured_disk import MeasuredDisk
from minibroker.broker.metadata_log import MetadataError
from minibroker.broker.request_statistics import RequestStatistics
from minibroker.broker.server import BindError, BoundListener, Server, bind
from minibroker.broker.sessions import FetchSessions
from minibroker.broker.settings import Settings, SettingsError
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import uuid_text
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment
from minibroker.storage.log_directories import LogDirectories
from minibroker.storage.recovery import LogDirectoryError

log = logging.getLogger("minibroker")

CLEANER_DELAY_MS = 500
MAX_CLEANER_THREADS = 1000  # so many are never made: log.cleaner.threads is what counts


class StartError(Exception):
    """Why the broker does not start, in one line."""


class Measurements(NamedTuple):
    """What is counted for the metrics, and where those are served."""

    bound: BoundListener
    requests: RequestStatistics
    cleaner: CleanerStatistics
    disk: MeasuredDisk


class UncleanStop(Exception):
    """Why the next start has to recover, in one line."""


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
    loop = asyncio.get_running_loop()
    clock, source = SystemClock(loop), random.SystemRandom()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with (
        _bound(settings, nodes) as bound,
        _bound_metrics(settings, metrics_port) as metrics,
        _opened(settings, clock, source, Disk() if metrics is None else metrics.disk) as logs,
    ):
        with _understood():
            cluster = Cluster(settings, clock, logs, source)
            _load(cluster, bound)
        await _serve(cluster, bound, metrics, announce, stop)
    return 0


def _load(cluster: Cluster, bound: dict[int, list[BoundListener]]) -> None:
    """Give the cluster its nodes, and have it read what the directories hold of it."""
    for node_id, listeners in bound.items():
        slots = cluster.settings["max.incremental.fetch.session.cache.slots"]
        node = cluster.nodes[node_id] = Node(node_id, FetchSessions(slots, cluster.random))
        node.endpoints = {listener.listener.name: listener.endpoint for listener in listeners}
        node.rack = cluster.settings["broker.rack"]
    cluster.load()


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What the directories hold may be no use; that is no mistake of ours, and told in one line."""
    try:
        yield
    except (LogDirectoryError, MetadataError, KafkaError) as error:
        raise StartError(" ".join(str(error).split())) from error


async def _serve(
    cluster: Cluster,
    bound: dict[int, list[BoundListener]],
    metrics: Measurements | None,
    announce: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    handlers.load()
    server = Server(asyncio.get_running_loop(), cluster, [] if metrics is None else [metrics.requests])
    for node_id, listeners in bound.items():
        for listener in listeners:
            await server.serve(cluster.nodes[node_id], listener)
    server.sweep_idle()
    Housekeeping(cluster).start()
    with contextlib.ExitStack() as until_closed:
        async with contextlib.AsyncExitStack() as beside:
            if metrics is not None:
                await beside.enter_async_context(_metrics_served(cluster, server, metrics))
            announce("minibroker listens on " + ",".join(_addresses(bound)))
            until_closed.enter_context(_compacting(cluster, metrics.cleaner if metrics else CleanerStatistics()))
            await stop.wait()
        await server.close()
    cluster.leave()


@contextlib.contextmanager
def _compacting(cluster: Cluster, statistics: CleanerStatistics) -> Iterator[None]:
    """Have logs compacted inside the block, but not at once. At its end no thread is at it any more."""
    # Threads of its own: a cleaning takes minutes, and the others are for syncs, which a producer waits for.
    threads = SystemClock(asyncio.get_running_loop(), aside_threads=MAX_CLEANER_THREADS)
    stopped = threading.Event()
    with contextlib.ExitStack() as running:
        running.callback(threads.wait_for_aside)
        running.callback(stopped.set)

        def start() -> None:
            from minibroker.broker.cleaner import Cleaner  # neither the start nor the first clients need wait for it

            cleaner = Cleaner(cluster, threads.run_aside, stopped.wait, statistics)
            running.callback(cleaner.close)
            cleaner.start()

        running.callback(cluster.clock.call_later(CLEANER_DELAY_MS, start).cancel)
        yield


@contextlib.asynccontextmanager
async def _metrics_served(cluster: Cluster, server: Server, measured: Measurements) -> AsyncIterator[None]:
    # Imported only when they are asked for: the library would double the time to start.
    from minibroker.broker.metrics import Observed, exposition
    from minibroker.broker.metrics_server import MetricsServer

    started_s = cluster.clock.wall_ms() / 1000
    observed = Observed(cluster, server, measured.requests, measured.disk.syncs, measured.cleaner, started_s)
    metrics = MetricsServer(lambda: exposition(observed))
    await metrics.serve(measured.bound)
    try:
        yield
    finally:
        await metrics.close()


def _addresses(bound: dict[int, list[BoundListener]]) -> Iterator[str]:
    for listeners in bound.values():
        for listener in listeners:
            yield str(listener.endpoint)


@contextlib.contextmanager
def _bound(settings: Settings, nodes: int) -> Iterator[dict[int, list[BoundListener]]]:
    """Take all addresses, by node id; port 0 becomes what was free. Gives them back in the end."""
    bound: dict[int, list[BoundListener]] = {}
    try:
        wanted = broker_listeners(settings)
        first = settings["node.id"]
        for index in range(nodes):
            listeners = bound[first + index] = []
            for listener in listeners_of_node(wanted, index):
                listeners.append(bind(listener, settings))
        yield bound
    except (BindError, SettingsError) as error:
        raise StartError(str(error)) from None
    finally:
        for listeners in bound.values():
            for taken in listeners:
                taken.socket.close()


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


@contextlib.contextmanager
def _opened(settings: Settings, clock: SystemClock, source: random.Random, disk: Disk) -> Iterator[LogDirectories]:
    """Open the log directories, and close them as a clean shutdown does, however the broker ended.

    Raises UncleanStop if the disk does not let them be closed. Who could not even start is told why, and not that.
    """
    environment = Environment(disk, clock.wall_ms, clock.call_later, clock.run_aside, source)
    with _understood():
        logs = LogDirectories(
            environment,
            settings.log_directories,
            node_id=settings["node.id"],
            cluster_id=None,
            new_id=lambda: uuid_text(new_uuid(source)),
        )
    refused = False
    try:
        yield logs
    except StartError:
        refused = True
        raise
    finally:
        clock.wait_for_aside()
        try:
            logs.close()
        except (KafkaError, OSError) as error:
            if not refused:
                raise UncleanStop(str(error)) from error
