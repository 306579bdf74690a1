"""The proxy between a C client and the broker, beside a plain TCP relay: what a request and a MB cost.

The CPU is that of the process in the middle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory

import programs
import servers
import wire
from exchanges import MB, RATE_COLUMNS, VOLUME_COLUMNS, pinged, volume_fetched
from report import Case, Sample, Section
from servers import Server, Target

RELAY = str(programs.HERE / "relay.py")
REGION, BATCH = MB, 99_900
Between = Callable[[Server], AbstractContextManager[Server]]


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each."""
    places: dict[str, Between] = {"relay": relay, "proxy": proxy, "proxy --save": saving}
    pings = [
        _ping(f"{name}, {depth} in flight", between, depth, seconds)
        for depth in (1, 16)
        for name, between in places.items()
    ]
    fetches = [_fetch(name, between, seconds) for name, between in places.items()]
    return [
        Section("proxy", "Through a proxy: Produce v9, one record of 100 bytes, one connection", RATE_COLUMNS, pings),
        Section("proxy-volume", "Through a proxy: Fetch v12 of 1 MB again and again", VOLUME_COLUMNS, fetches),
    ]


@contextmanager
def relay(upstream: Server) -> Iterator[Server]:
    """The plain relay."""
    with servers.process([sys.executable, RELAY, upstream.host, str(upstream.port)]) as server:
        yield server


@contextmanager
def proxy(upstream: Server, *options: str) -> Iterator[Server]:
    """The proxy, which counts requests and prints none."""
    words = ["proxy", "--quiet", "--upstream", f"{upstream.host}:{upstream.port}", "--listen", "127.0.0.1:0"]
    with servers.process([sys.executable, *servers.MINIBROKER, *words, *options]) as server:
        yield server


@contextmanager
def saving(upstream: Server) -> Iterator[Server]:
    """The proxy, which also writes all that passes into a file."""
    with (
        TemporaryDirectory(prefix="minibroker-benchmark-flows-") as folder,
        proxy(upstream, "--save", f"{folder}/flows") as server,
    ):
        yield server


def _ping(name: str, between: Between, depth: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with wire.topic(target.server) as topic, between(target.server) as middle:
            request = wire.produce_request(topic, wire.batch([b"x" * 100]))
            return pinged(middle, request, wire.produce_error_at(topic), seconds, 1, depth)

    return Case(name, measure)


def _fetch(name: str, between: Between, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        with between(target.server) as middle:
            return volume_fetched(target.server, REGION, BATCH, seconds, middle)

    return Case(name, measure)
