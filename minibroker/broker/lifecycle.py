"""A broker that serves, in whatever loop and process: its parts are put together here, and taken apart again.

Signals, the interpreter's switches and what is printed are the process's business (`process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minibroker.broker import handlers
from minibroker.broker.clock import BusyClock, Clock, LifeClock, SystemClock
from minibroker.broker.cluster import Cluster, Node, new_uuid
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.control.elections import bring_up
from minibroker.broker.control.registration import join, leave
from minibroker.broker.metadata.features import INITIAL
from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.broker.network.listeners import broker_listeners, listeners_of_node
from minibroker.broker.network.server import BindError, BoundListener, Server, bind
from minibroker.broker.requests.fetch_sessions import FetchSessions
from minibroker.broker.requests.interceptors import Interceptor
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import uuid_text
from minibroker.storage.directories.log_directories import LogDirectories
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment
from minibroker.storage.recovery.recovery import LogDirectoryError

if TYPE_CHECKING:
    from minibroker.broker.monitoring.measuring import Measurements

log = logging.getLogger("minibroker.running")

CLEANER_DELAY_MS = 500
CLEANER_RETRY_MS = 10_000
MAX_CLEANER_THREADS = 1000  # so many are never made: log.cleaner.threads is what counts

Bound = dict[int, list[BoundListener]]


class StartError(Exception):
    """Why the broker does not start, in one line."""


class UncleanStop(Exception):
    """Why the next start has to recover, in one line."""


@dataclass(frozen=True)
class Seams:
    """What a broker is given from outside: time, the disk, chance, and who looks at its requests.

    `sockets_clock` is for what outlives the cluster, if `clock` does not. `first_levels` are the levels of features
    that a new cluster begins with.
    """

    clock: BusyClock
    sockets_clock: Clock | None = None
    disk: Disk = field(default_factory=Disk)
    random: random.Random = field(default_factory=random.SystemRandom)
    interceptors: list[Interceptor] = field(default_factory=list)
    first_levels: Mapping[str, int] = field(default_factory=INITIAL.copy)


class Running:
    """One life of a broker: open once made, serving clients from `serve` on, and ended by `close` or `crash`."""

    def __init__(self, settings: Settings, bound: Bound, seams: Seams) -> None:
        """Open the log directories and read what they hold. Raises StartError; then nothing stays open."""
        self._bound = dict(bound)
        self._accepting: list[asyncio.Future[None]] = []  # so that they are not collected before they are done
        self._nodes = {node_id: Node(node_id, FetchSessions(0, seams.random)) for node_id in bound}
        self._cleaning: contextlib.ExitStack | None = None
        # Threads of its own: a cleaning takes minutes, and the others are for syncs, which a producer waits for.
        self._cleaner_threads = SystemClock(asyncio.get_running_loop(), aside_threads=MAX_CLEANER_THREADS)
        self._cleaner_statistics = CleanerStatistics()
        self._open(settings, seams, cluster_id=None)
        handlers.load()
        self.server = Server(asyncio.get_running_loop(), self.cluster, seams.interceptors, seams.sockets_clock)

    def _open(self, settings: Settings, seams: Seams, cluster_id: str | None) -> None:
        self._clock = seams.clock
        with _understood():
            self.logs = _open_logs(settings, seams, cluster_id)
        try:
            with _understood():
                self.cluster = Cluster(settings, seams.clock, self.logs, seams.random)
                self.cluster.first_levels = seams.first_levels
                self._load()
        except BaseException:
            with contextlib.suppress(UncleanStop):  # who could not even start is told why, and not that
                self._close_logs()
            raise

    def _load(self) -> None:
        """Give the cluster its nodes, and have it read what the directories hold of it."""
        cluster = self.cluster
        racks = _racks(cluster.settings["broker.rack"], len(self._bound))
        for (node_id, listeners), rack in zip(self._bound.items(), racks, strict=True):
            slots = cluster.settings["max.incremental.fetch.session.cache.slots"]
            node = cluster.nodes[node_id] = self._nodes[node_id]
            node.sessions = FetchSessions(slots, cluster.random)
            node.endpoints = {listener.listener.name: listener.endpoint for listener in listeners}
            node.rack = rack
        cluster.load()

    async def serve(self, measured: Measurements | None = None) -> None:
        """Accept clients, and begin with the chores; compaction begins a little later.

        Connections and cleanings are counted in `measured`, on top of what lives before this one have left there.
        """
        if measured is not None:
            self._cleaner_statistics, self.server.accepted = measured.cleaner, measured.accepted
        for node_id, listeners in self._bound.items():
            for listener in listeners:
                await self.server.serve(self._nodes[node_id], listener)
        self.server.sweep_idle()
        self.server.sweep_stalled()
        self._begin_chores()

    def _begin_chores(self) -> None:
        Housekeeping(self.cluster).start()
        self._cleaner_statistics.begin_anew()
        self._cleaning = contextlib.ExitStack()
        self._cleaning.enter_context(_compacting(self.cluster, self._cleaner_threads, self._cleaner_statistics))

    def let_go(self) -> None:
        """Leave the directories as a crash would: nothing more is written. `replace` or `crash` must follow at once."""
        self._stop_cleaning()
        self.server.drop_work()
        self._clock.wait_for_aside()
        self.logs.abandon()

    def replace(self, settings: Settings, seams: Seams, *, cluster_id: str | None, returning: Bound) -> None:
        """Go on, for the same clients, with what the directories of `settings` hold, once `let_go` was called.

        Nodes that were away are `returning`. The timers of the clock of before must run no more. Requests that wait are
        run once more. Raises StartError: then only `crash` is left to be called.
        """
        self._bound = dict(sorted({**self._bound, **returning}.items()))
        self._open(settings, seams, cluster_id)
        self.server.go_on_with(self.cluster)
        for node_id, listeners in returning.items():
            for listener in listeners:
                self._accepting.append(asyncio.ensure_future(self.server.serve(self._nodes[node_id], listener)))
        self._begin_chores()

    # --- nodes that come and go -------------------------------------------------------------------

    def node_leaves(self, node_id: int, *, cleanly: bool) -> None:
        """One of several nodes goes: its port is refused, its clients are cut off, and others lead what they can.

        `cleanly` lets the answers that are queued go out first. Raises KeyError for a node that is not there.
        """
        node = self.cluster.nodes[node_id]
        self.server.leave(node_id, cleanly=cleanly)
        del self._bound[node_id]
        del self.cluster.nodes[node_id]
        leave(self.cluster, node)

    async def node_returns(self, node_id: int, listeners: list[BoundListener]) -> None:
        """A node that went is back, on the same addresses, and its replicas catch up."""
        node = self.cluster.nodes[node_id] = self._nodes[node_id]
        slots = self.cluster.settings["max.incremental.fetch.session.cache.slots"]
        node.sessions = FetchSessions(slots, self.cluster.random)
        self._bound = dict(sorted({**self._bound, node_id: listeners}.items()))
        join(self.cluster, node)
        bring_up(self.cluster)
        for listener in listeners:
            await self.server.serve(node, listener)

    @property
    def node_ids(self) -> list[int]:
        """The nodes that are there."""
        return list(self._bound)

    @property
    def cleaning(self) -> bool:
        """Whether a log is being compacted now."""
        return self._cleaner_threads.busy

    async def close(self) -> None:
        """Let the answers that are queued go out, and stop cleanly. Raises UncleanStop if the disk does not let us."""
        try:
            await self.server.close()
            self._stop_cleaning()
            self.cluster.leave()
        finally:
            self._stop_cleaning()
            await self._close_logs_aside()

    async def _close_logs_aside(self) -> None:
        """Close the logs, which takes seconds if there are thousands, in another thread.

        Only if no timer can reach them meanwhile: without the end of its timers nobody else is on the loop either.
        """
        if not isinstance(self._clock, LifeClock):
            self._close_logs()
            return
        from concurrent.futures import ThreadPoolExecutor  # the start need not wait for it

        self._clock.wait_for_aside()
        self._clock.end()
        with ThreadPoolExecutor(1, "minibroker-closing") as thread:
            await asyncio.get_running_loop().run_in_executor(thread, self._close_logs)

    def crash(self) -> None:
        """End as if the process had been killed: no answer, no checkpoint and no marker is written any more."""
        self.server.abort()
        self.let_go()

    def _stop_cleaning(self) -> None:
        cleaning, self._cleaning = self._cleaning, None
        if cleaning is not None:
            cleaning.close()

    def _close_logs(self) -> None:
        self._clock.wait_for_aside()
        try:
            self.logs.close()
        except (KafkaError, OSError) as error:
            raise UncleanStop(str(error)) from error


@contextlib.contextmanager
def bound_listeners(settings: Settings, nodes: int) -> Iterator[Bound]:
    """Take all addresses, by node id; port 0 becomes what was free. Gives them back in the end.

    Raises StartError.
    """
    bound: Bound = {}
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


def _open_logs(settings: Settings, seams: Seams, cluster_id: str | None) -> LogDirectories:
    clock, source = seams.clock, seams.random
    return LogDirectories(
        Environment(seams.disk, clock.wall_ms, clock.call_later, clock.run_aside, source),
        settings.log_directories,
        node_id=settings["node.id"],
        cluster_id=cluster_id,
        new_id=lambda: uuid_text(new_uuid(source)),
    )


def _racks(told: str | None, nodes: int) -> list[str | None]:
    """The rack of each node; of several nodes each has one of those that are told, in turn."""
    racks: list[str | None] = [told] if told is None or nodes == 1 else [rack.strip() for rack in told.split(",")]
    return [racks[index % len(racks)] for index in range(nodes)]


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What the directories hold may be no use; that is no mistake of ours, and told in one line."""
    try:
        yield
    except (LogDirectoryError, MetadataError, KafkaError) as error:
        raise StartError(" ".join(str(error).split())) from error


@contextlib.contextmanager
def _compacting(cluster: Cluster, threads: SystemClock, statistics: CleanerStatistics) -> Iterator[None]:
    """Have logs compacted inside the block, but not at once. At its end no thread is at it any more.

    Where the cleaner's code cannot be read, as too many files are open, it is tried again and again.
    """
    stopped = threading.Event()
    with contextlib.ExitStack() as running:
        running.callback(threads.wait_for_aside)
        running.callback(stopped.set)

        def start() -> None:
            try:  # neither the start nor the first clients need wait for it
                from minibroker.broker.upkeep.cleaner import Cleaner
            except (OSError, ImportError) as error:
                log.error("no log is compacted yet, it is tried again in %d s: %s", CLEANER_RETRY_MS // 1000, error)
                running.callback(cluster.clock.call_later(CLEANER_RETRY_MS, start).cancel)
                return
            cleaner = Cleaner(cluster, threads.run_aside, stopped.wait, statistics)
            running.callback(cleaner.close)
            cleaner.start()

        running.callback(cluster.clock.call_later(CLEANER_DELAY_MS, start).cancel)
        yield
