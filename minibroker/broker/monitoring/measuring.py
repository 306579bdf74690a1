"""The counters of a process, which outlive restarts of its broker, and the address of the metrics.

The metrics are in `metrics`, their server in `metrics_server`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from minibroker.broker.configs.listeners import Listener, make_broker_listeners
from minibroker.broker.configs.settings import Settings
from minibroker.broker.server import BoundListener, Server, bind_listener
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.named_tuples import NamedTuple

if TYPE_CHECKING:
    import ssl

    from minibroker.broker.assembly import Broker
    from minibroker.broker.monitoring.measured_disk import SyncStatistics
    from minibroker.broker.monitoring.request_statistics import RequestStatistics


class MeasuredBroker(Protocol):
    """The parts of a broker that the metrics read."""

    cluster: Broker
    server: Server


class Measurements(NamedTuple):
    """The counters, and the address that serves them.

    `over_tls` is whether they are served with the TLS of a listener. `started_s` is when the process started, in
    seconds since 1970. `accepted` is passed to `Server`.
    """

    bound: BoundListener
    started_s: float
    requests: RequestStatistics
    syncs: SyncStatistics
    cleaner: CleanerStatistics
    accepted: Counter[tuple[int, str]]
    over_tls: bool = False


@contextlib.contextmanager
def bind_metrics_port(
    settings: Settings, port: int | None, wall_ms: Callable[[], int], *, over_tls: bool = False
) -> Iterator[Measurements | None]:
    """Bind the metrics' address, on the host of the first listener, inside the block; yield None without a port.

    With port 0 the operating system chooses a port; with None there are no metrics. Raises BindError.
    """
    if port is None:
        yield None
        return
    from minibroker.broker.monitoring.measured_disk import SyncStatistics  # as most brokers have no metrics
    from minibroker.broker.monitoring.request_statistics import RequestStatistics

    host = make_broker_listeners(settings)[0].host
    bound = bind_listener(Listener("METRICS", "HTTP", host, port, "", 0), settings)
    with bound.socket:
        yield Measurements(
            bound, wall_ms() / 1000, RequestStatistics(), SyncStatistics(), CleanerStatistics(), Counter(), over_tls
        )


@contextlib.asynccontextmanager
async def serve_metrics(
    measurements: Measurements | None, get_broker: Callable[[], MeasuredBroker | None]
) -> AsyncIterator[None]:
    """Serve the metrics, if any, while the block runs; `get_broker` returns the broker, or None if it is down."""
    if measurements is None:
        yield
        return
    # Imported only on request: the library would double the time to start.
    from minibroker.broker.monitoring.metrics import MetricSources, generate_exposition
    from minibroker.broker.monitoring.metrics_server import MetricsServer, MetricsUnavailable

    async def generate_metrics() -> bytes:
        running = get_broker()
        if running is None:
            raise MetricsUnavailable
        cluster, server, (_, started_s, requests, syncs, cleaner, *_) = running.cluster, running.server, measurements
        return await generate_exposition(MetricSources(cluster, server, requests, syncs, cleaner, started_s))

    server = MetricsServer(generate_metrics, lambda: can_clients_connect(get_broker()))
    await server.serve(measurements.bound, (lambda: _find_tls_context(get_broker())) if measurements.over_tls else None)
    try:
        yield
    finally:
        await server.close()


def can_clients_connect(broker: MeasuredBroker | None) -> bool:
    """Whether clients can connect: the broker runs, and not all of its nodes are away."""
    return broker is not None and bool(broker.cluster.nodes)


def _find_tls_context(broker: MeasuredBroker | None) -> ssl.SSLContext | None:
    """Return the present TLS of the first listener that has it, or None."""
    nodes = () if broker is None else broker.cluster.nodes.values()
    return next((tls.current.context for node in nodes for tls in node.tls.values()), None)
