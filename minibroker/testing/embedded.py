"""The life of a broker inside of a test: started, stopped, killed, reset, in a thread of its own or the test's loop.

What is done to it while it lives, and what is asked of it, stands in the files beside this one; `broker` joins them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from minibroker.broker.clock import LifeClock, SystemClock
from minibroker.broker.configs.configuration import load_settings
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.lifecycle import Running, Seams
from minibroker.broker.metadata.features import INITIAL
from minibroker.broker.requests.interceptors import Interceptor
from minibroker.testing.data import Data, Snapshot
from minibroker.testing.emulation.defaults import settings_of
from minibroker.testing.emulation.emulation import Emulation, first_levels_of
from minibroker.testing.emulation.releases import release_of
from minibroker.testing.loops import CallersLoop, Loop, LoopThread, NotRunning, Result
from minibroker.testing.moving_clock import MovingClock
from minibroker.testing.ports import Ports, close_all

if TYPE_CHECKING:
    from minibroker.broker.monitoring.measuring import Measurements

log = logging.getLogger("minibroker")

# What a test wants otherwise than Kafka has it. All of it can be set back.
DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.consumer.heartbeat.interval.ms": "200",  # a member learns its partitions by its next heartbeat
    "group.consumer.min.heartbeat.interval.ms": "200",
}


MAXIMUM_NODES = 100


class Embedded:
    """A broker for `with` (a thread of its own) or `async with` (the caller's event loop).

    Every method may be called from any thread. One that waits blocks, and has a twin to be awaited whose name begins
    with `a`; a broker in the caller's own loop has only the twins.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        nodes: int = 1,
        auto_create: bool = True,
        directory: str | Path | None = None,
        seed: int | None = None,
        emulate: str | None = None,
    ) -> None:
        """`settings` have Apache Kafka's names. The data is in `directory`, or in a temporary one, removed at the end.

        `auto_create` is `auto.create.topics.enable`. `seed` makes ids and leaders the same in every run. `emulate` is a
        release of Apache Kafka from "0.8.2" to "4.3", as which it answers. Raises SettingsError, and ValueError for a
        release that is not known and for too few or too many nodes.
        """
        if not isinstance(nodes, int) or not 1 <= nodes <= MAXIMUM_NODES:
            raise ValueError(f"nodes is a number from 1 to {MAXIMUM_NODES}, and cannot be {nodes!r}")
        self._data = Data(None if directory is None else Path(directory))
        self._texts = DEFAULTS | {"auto.create.topics.enable": str(auto_create).lower()}
        self.emulated: Final = None if emulate is None else release_of(emulate)
        if self.emulated is not None:
            self._texts |= settings_of(self.emulated)
        self._texts |= {name: text_of_setting(value) for name, value in (settings or {}).items()}
        _check(self._texts)  # what is wrong with them is said at once
        self.nodes: Final = nodes
        self._random = random.SystemRandom() if seed is None else random.Random(seed)
        self.interceptors: Final[list[Interceptor]] = []  # the same in every life; empty, it costs requests nothing
        self.measured: Measurements | None = None  # what all its lives are counted in
        if self.emulated is not None:
            Emulation(self.emulated).install(self)
        self.when_reset: Final[list[Callable[[], None]]] = []  # called on the loop, after the state has changed
        self._loop: Loop | None = None
        self._ports: Ports | None = None
        self._running: Running | None = None
        self._clock: MovingClock | None = None
        self._life: LifeClock | None = None

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.astop()

    def start(self) -> Self:
        """Serve, in a thread of its own. Raises StartError."""
        self._begin(LoopThread())
        try:
            self.loop.run(self._serve())
        except BaseException:
            self._end()
            raise
        return self

    async def astart(self) -> Self:
        """Serve, in the loop that is running. Raises StartError."""
        self._begin(CallersLoop())
        try:
            await self._serve()
        except BaseException:
            self._end()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly, and remove the data if it was temporary. In a fork of its process: nothing, it is not its."""
        if self._loop is not None and not self._loop.is_elsewhere:
            try:
                self.loop.run(self._close())
            finally:
                self._end()

    async def astop(self) -> None:
        """Stop the broker as `stop` does."""
        if self._loop is not None and not self._loop.is_elsewhere:
            try:
                await self.loop.arun(self._close())
            finally:
                self._end()

    def restart(self) -> None:
        """Stop cleanly, if it runs, and start again with the same ports and data."""
        self.loop.run(self._restart())

    async def arestart(self) -> None:
        """Restart the broker as `restart` does."""
        await self.loop.arun(self._restart())

    def kill(self) -> None:
        """Crash: connections are cut, nothing more is written, ports are refused. `restart` brings it up again."""
        self.loop.call(self._kill)

    # --- its state --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Back to empty at once: topics, groups, transactions, configs, faults, journal. Connections and ports stay."""
        self.loop.call(lambda: self._replace(None))

    def snapshot(self) -> Snapshot:
        """All that the logs hold now, to come back to by `restore`; it goes with the broker."""
        return self.loop.call(self._snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Back to what the logs held at the snapshot; connections and ports stay. FileNotFoundError if that is gone."""
        self.loop.call(lambda: self._replace(snapshot))

    # --- where it is ------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of the first listener of each node, with commas between them, as clients take it."""
        firsts = [listeners[0] for listeners in self.ports.listeners.values()]
        return ",".join(f"{first.host or 'localhost'}:{first.port}" for first in firsts)

    @property
    def directory(self) -> Path:
        """Where its logs are: Apache Kafka's own files."""
        if self._data.current is None:
            raise NotRunning("the broker has not been started")
        return self._data.current

    @property
    def ports(self) -> Ports:
        """The addresses that it keeps. Raises NotRunning."""
        if self._ports is None:
            raise NotRunning("the broker has not been started")
        return self._ports

    @property
    def loop(self) -> Loop:
        """Return what brings work to the broker's event loop."""
        if self._loop is None:
            raise NotRunning("the broker is not running")
        return self._loop

    @property
    def is_running(self) -> bool:
        """Whether clients can connect."""
        return self._running is not None

    @property
    def is_stopped(self) -> bool:
        """Whether it was never started, or stopped: then `start` begins it, and after a `kill` only `restart`."""
        return self._loop is None

    def on_loop(self, function: Callable[[], Result]) -> Result:
        """Return what `function` gives on the broker's loop, or here while it has none."""
        return function() if self._loop is None else self._loop.call(function)

    @property
    def running(self) -> Running:
        """The parts of its present life, which belong to its loop. Raises NotRunning."""
        if self._running is None:
            raise NotRunning("the broker is not running")
        return self._running

    @property
    def moving_clock(self) -> MovingClock:
        """The time it goes by, which belongs to its loop. Raises NotRunning."""
        if self._clock is None:
            raise NotRunning("the broker is not running")
        return self._clock

    # --- on the loop ------------------------------------------------------------------------------

    def _begin(self, loop: Loop) -> None:
        if self._loop is not None:
            loop.close()
            raise RuntimeError("the broker has been started already")
        try:
            self._data.open()
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    async def _serve(self) -> None:
        settings = self._settings()
        if self._ports is None:
            self._ports = Ports(settings, self.nodes)
        if self._clock is None:
            self._clock = MovingClock(SystemClock(asyncio.get_running_loop()))
        bound = self._ports.listen()
        try:
            self._running = Running(settings, bound, self._seams())
            await self._running.serve(self.measured)
        except BaseException:
            close_all(bound)
            raise

    def _settings(self) -> Settings:
        return Settings(self._texts | {"log.dirs": str(self.directory)})

    def _seams(self) -> Seams:
        """Return what the next life is given; the timers of the last one end."""
        clock = self.moving_clock
        self._end_life()
        self._life = LifeClock(clock)
        disk = self._data.disk if self.measured is None else self._data.measured(self.measured.syncs)
        levels = INITIAL if self.emulated is None else first_levels_of(self.emulated)
        return Seams(self._life, clock, disk, self._random, self.interceptors, levels)

    def _end_life(self) -> None:
        """End the last life: what has crashed does nothing more, however much time passes."""
        if self._life is not None:
            self._life.end()

    def _replace(self, snapshot: Snapshot | None) -> None:
        running = self.running
        cluster_id = running.cluster.cluster_id
        if snapshot is not None:
            self._data.check(snapshot)
        running.let_go()
        try:
            if snapshot is None:
                self._data.begin_anew()
            else:
                self._data.restore(snapshot)
            away = set(self.ports.listeners) - set(running.node_ids)
            returning = {node_id: self.ports.listen_for(node_id) for node_id in away}
            running.replace(self._settings(), self._seams(), cluster_id=cluster_id, returning=returning)
            self.moving_clock.reset()
            for told in self.when_reset:
                told()
        except BaseException:
            self._kill()
            raise

    def _snapshot(self) -> Snapshot:
        _ = self.running  # one that is down has none
        return self._data.snapshot()

    async def _close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    async def _restart(self) -> None:
        await self._close()
        await self._serve()

    def _kill(self) -> None:
        running, self._running = self.running, None
        running.crash()
        self._end_life()

    def _end(self) -> None:
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()  # who still waits there ends, and looks at the clock
        self._clock = self._life = None
        self._data.close()


def _check(texts: Mapping[str, str]) -> None:
    """Raises SettingsError, and logs what will have no effect."""
    try:
        loaded = load_settings(None, {}, [f"{name}={text}" for name, text in texts.items()])
    except SettingsError as error:
        raise SettingsError(str(error).removeprefix("--set ")) from None  # there is no command line here
    for warning in loaded.warnings:
        log.warning(warning)


def text_of_setting(value: object) -> str:
    """A setting's value as it stands in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(text_of_setting(each) for each in value)
    return str(value)
