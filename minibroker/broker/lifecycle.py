"""The life of a broker in any loop and process: its parts are put together here, and taken apart again.

Signals, settings of the interpreter and output are the business of `process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from minibroker.broker.assembly import Broker
from minibroker.broker.clock import BusyClock, Clock, ClusterClock, SystemClock
from minibroker.broker.configs.listeners import make_broker_listeners, shift_listeners_to_node
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.control.elections import elect_leaders_at_start
from minibroker.broker.control.registration import fence_leaving_node, register_joining_node
from minibroker.broker.fetch_sessions import FetchSessions
from minibroker.broker.metadata.features import INITIAL
from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.broker.metadata.nodes import Node
from minibroker.broker.server import BoundListener, Server, adopt_inherited_socket, bind_listener
from minibroker.broker.server import StartError as StartError
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import format_uuid, make_uuid
from minibroker.storage.directories.log_dirs import LogDirectories
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment
from minibroker.storage.recovery.recovery import LogDirectoryError

if TYPE_CHECKING:
    from minibroker.broker.monitoring.measuring import Measurements
    from minibroker.broker.network.inherited_sockets import InheritedSockets
    from minibroker.broker.requests.interceptors import Interceptor

log = logging.getLogger("minibroker.running")

CLEANER_DELAY_MS = 500
CLEANER_RETRY_MS = 10_000
MAX_CLEANER_THREADS = 1000  # never reached: log.cleaner.threads is the limit

BoundByNode = dict[int, list[BoundListener]]


class UncleanStop(Exception):
    """The next start has to recover; the message says why, in one line."""


class BrokerDependencies:
    """What a broker gets from outside: time, the disk, random numbers, and interceptors of its requests.

    Tests have three more doors, which are methods: `BrokerLifecycle.continue_with_new_cluster`,
    `Server.hold_back_output` and `MarkerSender.hold_back_markers`.

    `sockets_clock` is for what outlives the cluster, if `clock` does not. `first_levels` are the levels of features
    that a new cluster begins with, `first_records` further records, such as credentials of users, and
    `first_cluster_id` is its id; None: a random one.
    """

    def __init__(
        self,
        clock: BusyClock,
        sockets_clock: Clock | None = None,
        disk: Disk | None = None,
        chance: random.Random | None = None,
        interceptors: list[Interceptor] | None = None,
        first_levels: Mapping[str, int] = INITIAL,
        first_records: Sequence[Message] = (),
        first_cluster_id: str | None = None,
    ) -> None:
        self.clock = clock
        self.sockets_clock = sockets_clock
        self.disk = disk or Disk()
        self.random = chance or random.SystemRandom()
        self.interceptors = [] if interceptors is None else interceptors
        self.first_levels = first_levels
        self.first_records = first_records
        self.first_cluster_id = first_cluster_id


class BrokerLifecycle:
    """One life of a broker: it opens its logs when made, and serves clients from `serve` on.

    It ends by `close` or `stop_as_if_killed`.
    """

    def __init__(self, settings: Settings, bound: BoundByNode, dependencies: BrokerDependencies) -> None:
        """Open the log directories and read what they hold. Raises StartError; then nothing stays open."""
        self._bound = dict(bound)
        self._accepting: list[asyncio.Future[None]] = []  # or the collector would take them before they are done
        self._nodes = {node_id: Node(node_id, FetchSessions(0, dependencies.random)) for node_id in bound}
        self._cleaning: contextlib.ExitStack | None = None
        # Threads of its own: a cleaning takes minutes, and producers wait for the syncs in the other threads.
        self._cleaner_threads = SystemClock(asyncio.get_running_loop(), aside_threads=MAX_CLEANER_THREADS)
        self._cleaner_statistics = CleanerStatistics()
        self._open_cluster(settings, dependencies, cluster_id=None)
        self.server = Server(
            asyncio.get_running_loop(), self.cluster, dependencies.interceptors, dependencies.sockets_clock
        )

    def _open_cluster(self, settings: Settings, dependencies: BrokerDependencies, cluster_id: str | None) -> None:
        self._clock = dependencies.clock
        with _translate_into_start_error():
            self.logs = _open_log_directories(settings, dependencies, cluster_id)
        try:
            with _translate_into_start_error():
                self.cluster = Broker(settings, dependencies.clock, self.logs, dependencies.random)
                self.cluster.first_levels = dependencies.first_levels
                self.cluster.first_records = dependencies.first_records
                self._load_cluster()
        except BaseException:
            with contextlib.suppress(UncleanStop):  # the reason why it does not start matters more
                self._close_logs()
            raise

    def _load_cluster(self) -> None:
        """Give the cluster its nodes, and load it from the directories."""
        cluster = self.cluster
        racks = _assign_racks_to_nodes(cluster.settings["broker.rack"], len(self._bound))
        for (node_id, listeners), rack in zip(self._bound.items(), racks, strict=True):
            slots = cluster.settings["max.incremental.fetch.session.cache.slots"]
            node = cluster.nodes[node_id] = self._nodes[node_id]
            node.sessions = FetchSessions(slots, cluster.random)
            node.endpoints = {listener.listener.name: listener.endpoint for listener in listeners}
            node.rack = rack
            for tls in node.tls.values():
                tls.replace_tls_settings(cluster.static_settings)
        cluster.load_cluster()

    async def serve(self, measurements: Measurements | None = None) -> None:
        """Accept clients, and begin the chores; compaction begins a little later.

        Connections and cleanings are counted in `measurements`, on top of the counts of earlier lives.
        """
        if measurements is not None:
            self._cleaner_statistics, self.server.accepted = measurements.cleaner, measurements.accepted
        await self._accept_clients(self._bound)
        self.server.close_idle_connections()
        self.server.close_stalled_connections()
        self._begin_housekeeping_and_cleaning()

    async def _accept_clients(self, listeners_by_node: BoundByNode) -> None:
        """Accept clients on these listeners, and on those that the recorded configs add."""
        for node_id, listeners in listeners_by_node.items():
            for listener in listeners:
                await self.server.serve_listener(self._nodes[node_id], listener)
        self.server.apply_listener_changes()

    def _begin_housekeeping_and_cleaning(self) -> None:
        Housekeeping(self.cluster).start_chores()
        self._cleaner_statistics.reset_results_of_last_check()
        self._cleaning = contextlib.ExitStack()
        self._cleaning.enter_context(
            _run_cleaner_in_block(self.cluster, self._cleaner_threads, self._cleaner_statistics)
        )

    def close_directories_as_in_crash(self) -> None:
        """Leave the directories as a crash would. `continue_with_new_cluster` or `stop_as_if_killed` must follow."""
        self._stop_cleaning()
        self.server.drop_queued_operations()
        self._clock.wait_for_threads_and_callbacks()
        self.logs.close_without_checkpoints()

    def continue_with_new_cluster(
        self,
        settings: Settings,
        dependencies: BrokerDependencies,
        *,
        cluster_id: str | None,
        returning_nodes: BoundByNode,
    ) -> None:
        """Go on for the same clients with the directories of `settings`, after `close_directories_as_in_crash`.

        `returning_nodes` were away. The timers of the earlier clock must not run any more. Waiting requests
        run once more. Raises StartError; then only `stop_as_if_killed` may be called.
        """
        self._bound = dict(sorted({**self._bound, **returning_nodes}.items()))
        self._open_cluster(settings, dependencies, cluster_id)
        self.server.switch_clients_to_cluster(self.cluster)
        if returning_nodes:
            self._accepting.append(asyncio.ensure_future(self._accept_clients(returning_nodes)))
        self._begin_housekeeping_and_cleaning()

    # --- nodes that come and go -------------------------------------------------------------------

    def remove_node(self, node_id: int, *, cleanly: bool) -> None:
        """Take one of several nodes away: close its port, disconnect its clients, and let others lead what they can.

        With `cleanly`, queued answers are sent first. Raises KeyError for a node that is not there.
        """
        node = self.cluster.nodes[node_id]
        self.server.close_listeners_of_node(node_id, cleanly=cleanly)
        del self._bound[node_id]
        del self.cluster.nodes[node_id]
        fence_leaving_node(self.cluster, node)

    async def restart_node(self, node_id: int, listeners: list[BoundListener]) -> None:
        """Bring a node back on the same addresses; its replicas catch up."""
        node = self.cluster.nodes[node_id] = self._nodes[node_id]
        slots = self.cluster.settings["max.incremental.fetch.session.cache.slots"]
        node.sessions = FetchSessions(slots, self.cluster.random)
        self._bound = dict(sorted({**self._bound, node_id: listeners}.items()))
        register_joining_node(self.cluster, node)
        elect_leaders_at_start(self.cluster)
        await self._accept_clients({node_id: listeners})

    @property
    def node_ids(self) -> list[int]:
        """The nodes that are there."""
        return list(self._bound)

    @property
    def is_log_cleaner_busy(self) -> bool:
        """Whether a log is being compacted now."""
        return self._cleaner_threads.is_busy

    async def close(self) -> None:
        """Send the queued answers, and stop cleanly. Raises UncleanStop if the disk fails."""
        try:
            await self.server.close()
            self._stop_cleaning()
            self.cluster.fence_nodes_at_shutdown()
        finally:
            self._stop_cleaning()
            await self._close_logs_in_thread()

    async def _close_logs_in_thread(self) -> None:
        """Close the logs in another thread, since that takes seconds if there are thousands.

        This needs a clock whose timers can be ended, so that none touches the logs in the meantime.
        """
        if not isinstance(self._clock, ClusterClock):
            self._close_logs()
            return
        from concurrent.futures import ThreadPoolExecutor  # not needed at the start

        self._clock.wait_for_threads_and_callbacks()
        self._clock.cancel_all_timers()
        with ThreadPoolExecutor(1, "minibroker-closing") as thread:
            await asyncio.get_running_loop().run_in_executor(thread, self._close_logs)

    def stop_as_if_killed(self) -> None:
        """End as if the process had been killed: write no more answers, checkpoints or markers."""
        self.server.abort()
        self.close_directories_as_in_crash()

    def _stop_cleaning(self) -> None:
        cleaning, self._cleaning = self._cleaning, None
        if cleaning is not None:
            cleaning.close()

    def _close_logs(self) -> None:
        self._clock.wait_for_threads_and_callbacks()
        try:
            self.logs.close()
        except (KafkaError, OSError) as error:
            raise UncleanStop(str(error)) from error


@contextlib.contextmanager
def bind_listeners(settings: Settings, nodes: int) -> Iterator[BoundByNode]:
    """Bind all addresses, by node id, and release them at the end; port 0 becomes a free one.

    Listeners whose sockets a supervisor has opened get these. Raises StartError.
    """
    bound: BoundByNode = {}
    handed: list[socket.socket | None] = []
    inherited = take_inherited_sockets()
    try:
        wanted = make_broker_listeners(settings)
        first = settings["node.id"]
        places = [(first + index, each) for index in range(nodes) for each in shift_listeners_to_node(wanted, index)]
        if inherited is not None:
            handed = inherited.assign_to_listeners([listener for _, listener in places])
        for (node_id, listener), taken in zip_longest(places, handed):
            made = (
                bind_listener(listener, settings)
                if taken is None
                else adopt_inherited_socket(listener, taken, settings)
            )
            bound.setdefault(node_id, []).append(made)
        if inherited is not None and inherited.addresses:
            raise StartError(f"LISTEN_FDS: no listener has the address {inherited.addresses[0]}, which was handed over")
        yield bound
    except SettingsError as error:
        raise StartError(str(error)) from None
    finally:
        if inherited is not None:
            inherited.close()
        for taken in filter(None, handed):
            taken.close()
        for each in chain.from_iterable(bound.values()):
            each.socket.close()


def take_inherited_sockets() -> InheritedSockets | None:
    """Take over the sockets that a supervisor has opened, if it has. Raises StartError."""
    if "LISTEN_FDS" not in os.environ:
        return None
    from minibroker.broker.network.inherited_sockets import InheritedSockets

    try:
        return InheritedSockets()
    except ValueError as error:
        raise StartError(str(error)) from None


def _open_log_directories(
    settings: Settings, dependencies: BrokerDependencies, cluster_id: str | None
) -> LogDirectories:
    clock, source = dependencies.clock, dependencies.random
    return LogDirectories(
        Environment(dependencies.disk, clock.wall_ms, clock.call_later, clock.run_in_thread, source),
        settings.log_directories,
        node_id=settings["node.id"],
        cluster_id=cluster_id,
        first_cluster_id=dependencies.first_cluster_id,
        new_id=lambda: format_uuid(make_uuid(source)),
    )


def _assign_racks_to_nodes(racks_text: str | None, nodes: int) -> list[str | None]:
    """Return the rack of each node; several nodes get the given racks in turn."""
    racks: list[str | None] = (
        [racks_text] if racks_text is None or nodes == 1 else [rack.strip() for rack in racks_text.split(",")]
    )
    return [racks[index % len(racks)] for index in range(nodes)]


@contextlib.contextmanager
def _translate_into_start_error() -> Iterator[None]:
    """Turn errors about the contents of the directories, which are not bugs of ours, into StartError with one line."""
    try:
        yield
    except (LogDirectoryError, MetadataError, KafkaError) as error:
        raise StartError(" ".join(str(error).split())) from error


@contextlib.contextmanager
def _run_cleaner_in_block(cluster: Broker, threads: SystemClock, statistics: CleanerStatistics) -> Iterator[None]:
    """Compact logs inside the block, after a delay. At its end no thread compacts any more.

    If the cleaner cannot be imported because too many files are open, try again later.
    """
    stopped = threading.Event()
    with contextlib.ExitStack() as running:
        running.callback(threads.wait_for_threads_and_callbacks)
        running.callback(stopped.set)

        def start_cleaner() -> None:
            try:  # neither the start nor the first clients should wait for it
                from minibroker.broker.upkeep.cleaner import LogCleaner
            except (OSError, ImportError) as error:
                log.error("compaction does not run yet, the next try is in %d s: %s", CLEANER_RETRY_MS // 1000, error)
                running.callback(cluster.clock.call_later(CLEANER_RETRY_MS, start_cleaner).cancel)
                return
            cleaner = LogCleaner(cluster, threads.run_in_thread, stopped.wait, statistics)
            running.callback(cleaner.close)
            cleaner.start_checks()

        running.callback(cluster.clock.call_later(CLEANER_DELAY_MS, start_cleaner).cancel)
        yield
