"""The life of a broker inside a test: start, stop, kill and reset.

The methods for a running broker are in `verbs/`; `Broker` joins them. The explorer is served from the broker's start to
its stop, also while the broker is down. The test kit replaces four parts of the broker (`BrokerDependencies`): the
clock (`MovingClock`), the disk (`directories`), the interceptors (faults, journal, emulation, waits, pauses), the
random source (`seed`). It also uses three kinds of methods of the broker:

    reset, restore   BrokerLifecycle.let_go and replace swap the state under clients that stay connected. Requests that
                     wait run once more: Connection.ask_again and DelayedOperation.rerun_in_new_cluster have no other
                     caller.
    pause_node       Server.hold and let_go keep queued answers from the sockets of a node.
    hold, release    MarkerSender.hold and release keep decided transactions without markers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from minibroker.addresses import HostPort
from minibroker.broker.clock import ClusterClock, SystemClock
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.lifecycle import BrokerDependencies, BrokerLifecycle
from minibroker.broker.metadata.features import INITIAL
from minibroker.broker.requests.interceptors import Interceptor
from minibroker.testing.embedded.directories import BrokerDirectories, Snapshot
from minibroker.testing.embedded.given_settings import check_settings, format_setting
from minibroker.testing.embedded.ports import Ports, close_sockets
from minibroker.testing.loops import (
    BrokerLoop,
    NotRunning,
    Result,
    ServedObject,
    blocking,
    immediate,
    make_coroutine_of_blocking_verb,
    shorten_tracebacks,
)
from minibroker.testing.moving_clock import MovingClock

if TYPE_CHECKING:
    from minibroker.broker.monitoring.measuring import Measurements
    from minibroker.protocol.declare import Message
    from minibroker.testing.embedded.broker_security import Security
    from minibroker.testing.embedded.issuer import Issuer
    from minibroker.testing.embedded.registry_verbs import RegistryVerbs

# Defaults that suit tests better than Kafka's. A test may set them to Kafka's.
DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.consumer.heartbeat.interval.ms": "200",  # a member learns its partitions with its next heartbeat
    "group.consumer.min.heartbeat.interval.ms": "200",
    "socket.busy.poll.us": "0",  # the interpreter's lock is for the test meanwhile
}
MAXIMUM_NODES = 100

# Imported by name: it imports all verbs of tests, which import the broker, which imports this file.
CONTROL_SERVER = "minibroker.testing.control.control_server"


class EmbeddedBroker(ServedObject):
    """A broker for `with` (a thread of its own) or `async with` (the caller's event loop).

    Any thread may call its methods. Each blocking method also exists as a coroutine, named with a leading `a`. With a
    broker in the caller's own loop, only the coroutines can be used.
    """

    @shorten_tracebacks
    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        nodes: int = 1,
        auto_create: bool = True,
        directory: str | Path | None = None,
        seed: int | None = None,
        emulate: str | None = None,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        explorer: bool = False,
        registry: bool | str = False,
    ) -> None:
        """Check the settings, which have Apache Kafka's names.

        The logs are in `directory`, or else in a temporary one that is removed at the end. `auto_create` is
        `auto.create.topics.enable`. `seed` makes ids and leaders the same in every run. `emulate` is a release of
        Apache Kafka from "0.8.2" to "4.4"; the broker answers as that release did. `security` is "PLAINTEXT", "SSL",
        "SASL_PLAINTEXT" or "SASL_SSL": the broker makes certificates, knows `users` by their passwords, and obeys ACLs;
        the settings `test.security` and `test.users` say the same. With `explorer`, `explorer_url` is a page that shows
        all requests, topics and groups; it needs the extra `minibroker[web]`. `registry` is True for a schema registry
        on any free port, or its address as HOST:PORT.
        Raises SettingsError, and ValueError for an unknown release or security and for too few or too many nodes.
        """
        if not isinstance(nodes, int) or not 1 <= nodes <= MAXIMUM_NODES:
            raise ValueError(f"nodes is a number from 1 to {MAXIMUM_NODES}, and cannot be {nodes!r}")
        self._directories = BrokerDirectories(None if directory is None else Path(directory))
        # The settings that hold unless others are given; who wants a plain broker's replaces them.
        self.defaults: dict[str, str] = DEFAULTS | {"auto.create.topics.enable": str(auto_create).lower()}
        self.interceptors: Final[list[Interceptor]] = []  # kept across restarts; while empty, they cost nothing
        self.emulated: Final = None if emulate is None else self._emulate_release(emulate)
        self._given = {name: format_setting(value) for name, value in (settings or {}).items()}
        self._security = self._make_security(security or self._given.get("test.security"), users)
        check_settings(self._setting_texts)
        self.nodes: Final = nodes
        self.first_records: Sequence[Message] = ()  # of the metadata of each new cluster
        self.first_cluster_id: str | None = None  # which a new directory gets
        self._random = random.SystemRandom() if seed is None else random.Random(seed)
        self.measured: Measurements | None = None
        self.reset_callbacks: Final[list[Callable[[], None]]] = []  # called on the loop after a reset or a restore
        self.event_listeners: Final[list[Callable[[str, str], None]]] = []  # called on the loop with what a test does
        self._explorer = ServedExplorer() if explorer else None
        self._ports: Ports | None = None
        self._registry = self._make_registry(registry) if registry else None
        self._running: BrokerLifecycle | None = None
        self._clock: MovingClock | None = None
        self._life: ClusterClock | None = None

    def _emulate_release(self, name: str) -> str:
        """Answer from now on like this release of Kafka; return its name. Raises ValueError."""
        from minibroker.testing.emulation.emulation import Emulation
        from minibroker.testing.emulation.releases import list_settings_of_release, parse_release

        release = parse_release(name)
        self.defaults |= list_settings_of_release(release)
        self.interceptors.append(Emulation(release))
        return release

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers if self.is_running else 'that is down'}>"

    # --- life -------------------------------------------------------------------------------------

    def kill_and_reserve_ports(self) -> Ports | None:
        """Stop as a crash does; return the ports, which stay reserved until they are closed. None if it was stopped."""
        ports, self._ports = self._ports, None
        if self.is_running:
            self.kill()
        if self._loop is not None and not self._loop.is_in_other_process:
            if self._explorer is not None:
                self._loop.run_on_loop(self._explorer.stop())
            self._close_event_loop(in_thread=True)
        return ports

    @blocking
    async def restart(self) -> None:
        """Stop cleanly, if the broker is up, and start again with the same ports and data. Raises StartError."""
        await self._close_broker()
        await self._serve_cluster()
        self.notify_event_listeners("life", "restart")

    arestart = make_coroutine_of_blocking_verb(restart)

    @blocking
    async def secure(self, protocol: str, users: Mapping[str, str] | None = None) -> None:
        """Start again with this security, and with these users beside those that it had; ports and data stay.

        Raises SettingsError, and ValueError as for a new broker.
        """
        before = self._security
        self._security = self._make_security(
            protocol, {**({} if before is None else before.passwords), **(users or {})}
        )
        try:
            check_settings(self._setting_texts)
        except SettingsError:
            self._security = before
            raise
        await self._close_broker()
        if before is not None and before.issuer is not None:
            before.issuer.stop()
        self.ports.apply_listener_settings(Settings(self._setting_texts))
        await self._serve_cluster()

    asecure = make_coroutine_of_blocking_verb(secure)

    @immediate
    def kill(self) -> None:
        """Crash: connections are cut, nothing more is written, ports refuse connections until `restart`."""
        running, self._running = self.running, None
        self.notify_event_listeners("life", "kill")
        if self._registry is not None:
            self._registry.abort()
        running.stop_as_if_killed()
        self._cancel_timers_of_last_life()

    def set_measurements(self, measurements: Measurements) -> None:
        """Count in `measurements`, across all restarts. Call it before the broker starts."""
        self.measured = measurements
        self.interceptors.insert(0, measurements.requests)

    def add_interceptor_first(self, interceptor: Interceptor) -> None:
        """Add an interceptor before all others except the metrics, which count every request."""
        self.interceptors.insert(0 if self.measured is None else 1, interceptor)

    def notify_event_listeners(self, kind: str, text: str) -> None:
        """Tell those who watch the broker what a test does to it. Call it on the loop."""
        for witness in self.event_listeners if self._clock is not None else ():
            witness(kind, text)

    # --- its state --------------------------------------------------------------------------------

    @immediate
    def reset(self) -> None:
        """Remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay."""
        self._crash_and_start_again(None)

    @immediate
    def snapshot(self) -> Snapshot:
        """Copy the current contents of the logs, for `restore`. The copy is removed when the broker stops.

        Raises OSError.
        """
        _ = self.running  # a broker that is down has no snapshot
        return self._directories.take_snapshot()

    @immediate
    def restore(self, snapshot: Snapshot) -> None:
        """Restore the logs of the snapshot. Connections and ports stay.

        Raises FileNotFoundError if the snapshot was removed.
        """
        self._crash_and_start_again(snapshot)

    # --- where it is ------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Return HOST:PORT of the first listener of each node, separated by commas, as clients are told it."""
        firsts = [listeners[0] for listeners in self.ports.listeners.values()]
        return ",".join(
            f"{first.advertised_host or 'localhost'}:{first.advertised_port or first.port}" for first in firsts
        )

    @property
    def registry(self) -> RegistryVerbs:
        """Return the schema registry: register schemas, see its requests, let it fail. Raises RuntimeError."""
        if self._registry is None:
            raise RuntimeError("the broker has no schema registry: it needs Broker(registry=True)")
        return self._registry

    def _make_registry(self, address_or_flag: bool | str) -> RegistryVerbs:
        """Return the schema registry for an address HOST:PORT, or True for any free port."""
        from minibroker.testing.embedded.registry_verbs import RegistryVerbs  # which few tests need

        host = cast(Any, self)  # `Broker`, which has the journal
        return RegistryVerbs(host, None if address_or_flag is True else str(address_or_flag))

    @property
    def directory(self) -> Path:
        """Return the log directory. Raises NotRunning."""
        if self._directories.current is None:
            raise NotRunning("the broker has not been started")
        return self._directories.current

    @property
    def is_secured(self) -> bool:
        """Whether it was made with `security`."""
        return self._security is not None

    @property
    def security(self) -> Security:
        """Return the broker's security. Raises RuntimeError without one."""
        if self._security is None:
            raise RuntimeError('the broker has no security: it needs Broker(security="SASL_SSL") or another protocol')
        return self._security

    def _make_security(self, protocol: str | None, users: Mapping[str, str] | None) -> Security | None:
        """Return a new security, or None. Raises ValueError."""
        if protocol is not None:
            from minibroker.testing.embedded.broker_security import Security  # which few tests need

            listeners = format_setting(Settings(self.defaults)["listeners"])
            return Security(protocol, users or {}, {"listeners": listeners} | self._given)
        if users or self._given.keys() & {"test.users", "test.issuer"}:
            raise ValueError("users and an issuer need security, such as SASL_SSL")
        return None

    @property
    def _setting_texts(self) -> dict[str, str]:
        return self.defaults | (self._given if self._security is None else self._security.settings)

    @property
    def _issuer(self) -> Issuer | None:
        return None if self._security is None else self._security.issuer

    @property
    def ports(self) -> Ports:
        """Return the addresses that the broker keeps. Raises NotRunning."""
        if self._ports is None:
            raise NotRunning("the broker has not been started")
        return self._ports

    @property
    def is_running(self) -> bool:
        """Return whether clients can connect."""
        return self._running is not None

    @property
    def is_stopped(self) -> bool:
        """Return whether `start` starts the broker. After a `kill` this is False, and `restart` starts it."""
        return self._loop is None

    def call_on_loop(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the broker's loop, or here while there is none; return its result."""
        return function() if self._loop is None else self._loop.call_on_loop(function)

    @property
    def running(self) -> BrokerLifecycle:
        """Return the running broker. Only its loop may use it. Raises NotRunning."""
        if self._running is None:
            raise NotRunning("the broker is not running")
        return self._running

    @property
    def moving_clock(self) -> MovingClock:
        """Return the broker's time. Only its loop may use it. Raises NotRunning."""
        if self._clock is None:
            raise NotRunning("the broker is not running")
        return self._clock

    # --- on the loop ------------------------------------------------------------------------------

    def _set_loop(self, loop: BrokerLoop) -> None:
        """Set the loop to serve on, and create the directory. Raises RuntimeError if there is a loop."""
        if self._loop is not None:
            loop.close()
            raise RuntimeError("the broker has been started already")
        try:
            self._directories.create_directory()
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    async def _start_serving(self) -> None:
        """Serve the cluster, and the explorer if it is wanted."""
        await self._serve_cluster()
        if self._explorer is not None:
            await self._explorer.start(self)

    async def _stop_serving(self) -> None:
        """Stop the explorer, the registry and the broker cleanly."""
        if self._explorer is not None:
            await self._explorer.stop()
        await self._close_broker()

    async def _serve_cluster(self) -> None:
        """Start the issuer, the broker and the registry, on the ports that are kept. Raises StartError."""
        if self._clock is None:
            self._clock = MovingClock(SystemClock(asyncio.get_running_loop()))
        if self._issuer is not None:
            await self._issuer.start(self.loop, self._clock.wall_ms)
        settings = self._make_settings()
        if self._ports is None:
            self._ports = Ports(settings, self.nodes)
        bound = self._ports.bind_listeners(settings)
        try:
            self._running = BrokerLifecycle(settings, bound, self._make_dependencies())
            await self._running.serve(self.measured)
            if self._security is not None:
                self._security.restore_passwords(self._running.cluster)
            if self._registry is not None:
                await self._registry.start()
        except BaseException:
            close_sockets(bound)
            raise

    def _make_settings(self) -> Settings:
        found = {} if self._security is None else self._security.issuer_settings
        return Settings(found | self._setting_texts | {"log.dirs": str(self.directory)})

    def _make_dependencies(self) -> BrokerDependencies:
        """Cancel the timers of the broker's last life, and return the dependencies of the next."""
        clock = self.moving_clock
        self._cancel_timers_of_last_life()
        self._life = ClusterClock(clock)
        disk = self._directories.make_disk(None if self.measured is None else self.measured.syncs)
        levels = INITIAL
        if self.emulated is not None:
            from minibroker.testing.emulation.emulation import list_initial_feature_levels

            levels = list_initial_feature_levels(self.emulated)
        records = [*self.first_records, *(() if self._security is None else self._security.first_records)]
        first_id = self.first_cluster_id
        return BrokerDependencies(self._life, clock, disk, self._random, self.interceptors, levels, records, first_id)

    def _cancel_timers_of_last_life(self) -> None:
        """Cancel all timers of the last life: a broker that has crashed does nothing more."""
        if self._life is not None:
            self._life.cancel_all_timers()

    def _crash_and_start_again(self, snapshot: Snapshot | None) -> None:
        """Replace the cluster, as after a crash, by an empty one or that of a snapshot; connections stay."""
        running = self.running
        cluster_id = running.cluster.cluster_id
        if snapshot is not None:
            self._directories.check_snapshot_exists(snapshot)
        running.close_directories_as_in_crash()
        try:
            if snapshot is None:
                self._directories.switch_to_empty()
            else:
                self._directories.restore_snapshot(snapshot)
            away, settings = set(self.ports.listeners) - set(running.node_ids), self._make_settings()
            returning = {node_id: self.ports.bind_listeners_of_node(node_id, settings) for node_id in away}
            running.continue_with_new_cluster(
                settings, self._make_dependencies(), cluster_id=cluster_id, returning_nodes=returning
            )
            self.moving_clock.reset()
            if self._issuer is not None:
                self._issuer.reset()
            for callback in self.reset_callbacks:
                callback()
            self.notify_event_listeners("life", "reset" if snapshot is None else "restore a snapshot")
        except BaseException:
            self.kill()
            raise

    async def _close_broker(self) -> None:
        """Stop the registry and the broker cleanly."""
        if self._registry is not None:
            await self._registry.stop()
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    def _close_event_loop(self, *, in_thread: bool = False) -> None:
        """Close the loop, release the ports, and remove the temporary directory, maybe in another thread."""
        if self._registry is not None:
            self._registry.close()
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        loop, self._loop = self._loop, None
        if self._issuer is not None and loop is not None:
            loop.call_on_loop(self._issuer.stop)
        if loop is not None:
            loop.close()  # before the clock is dropped, as the tasks that this cancels use it
        self._clock = self._life = None
        self._directories.close_and_remove_directories(aside=in_thread)


class ServedExplorer:
    """The explorer's server in the broker's loop. `url` is empty while it does not run."""

    def __init__(self) -> None:
        self.url = ""
        self._served = contextlib.AsyncExitStack()

    async def start(self, broker: object) -> None:
        """Serve the explorer of a `Broker` on any free port. Raises StartError."""
        control = import_module(CONTROL_SERVER)
        serving = control.serve_control(broker, HostPort(), None, explorer=True)
        self.url = f"{await self._served.enter_async_context(serving)}/explorer/"

    async def stop(self) -> None:
        """Stop, if it runs."""
        self.url = ""
        await self._served.aclose()
