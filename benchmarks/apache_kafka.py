"""Apache Kafka 4.3 to measure beside minibroker, from the jars of `conformance/`, with and without TLS.

Its JVM has the memory and the collector of Kafka's own scripts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import servers
from encryption import warm_up
from machine import ROOT
from servers import Server

sys.path.insert(0, str(ROOT))

from conformance.kafka_reference import KafkaProcess  # noqa: E402
from tests.clients.ports import free_ports  # noqa: E402

JVM_OPTIONS = [
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]
WARM_UP_S = 5.0  # each of four times


class MeasuredKafka(KafkaProcess):
    """Its second listener has TLS."""

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        self.tls_port = free_ports(1)
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},SSL://127.0.0.1:{self.tls_port},CONTROLLER://127.0.0.1:{controller_port}"
        protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
        given = {"listeners": listeners, "listener.security.protocol.map": protocols}
        super()._write_properties(controller_port, {**given, **properties})

    @property
    def jvm_options(self) -> list[str]:
        return JVM_OPTIONS

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@contextmanager
def kafka(*, warm: bool) -> Iterator[Server]:
    """Apache Kafka; if it is warm, its JVM has compiled what the rows need. Raises RuntimeError."""
    with servers.data_directory() as folder, TemporaryDirectory() as keys:
        store, authority = servers.key_store(Path(keys))
        settings = dict(each.split("=", 1) for each in servers.SETTINGS)
        tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        process = MeasuredKafka(Path(folder), {**settings, **tls})
        exec_at = time.perf_counter()
        process.start()
        listening_at = time.perf_counter()  # or up to 0.1 s before
        try:
            host, _, port = process.bootstrap_servers.rpartition(":")
            server = Server(host, int(port), process.pid, exec_at, listening_at, process.tls_port, authority)
            if warm:
                warm_up(server, WARM_UP_S)
            yield server
        finally:
            process.kill()
