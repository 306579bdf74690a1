"""Real clients through `minibroker proxy`: all write, read, administer and copy in transactions as without it.

Those without a program in `clients.py` do a round trip with that which logs in elsewhere.

With `--against kafka`, the proxy stands before Apache Kafka.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.clients import CLIENTS, run
from conformance.clients import Client as Program
from conformance.conftest import Broker
from conformance.security.client_programs import running_program
from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.proxy.flows import read_exchanges
from tests.running import PATIENCE_S

TRANSACTING = ("java-4", "franz-go")
ROUND_TRIPS = ("sarama", "aiokafka", "kafka-python")
RECORDS = 20


class Proxy:
    """A proxy process in front of a broker, which records what passes."""

    def __init__(self, upstream: str, directory: Path) -> None:
        self.flows = directory / "session.flows"
        command = [sys.executable, "-m", "minibroker", "proxy", "--upstream", upstream, "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*command, "--quiet", "--save", str(self.flows)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.bootstrap_servers = self._process.stdout.readline().split()[-1]

    def stop(self) -> str:
        """End it; return what it printed."""
        self._process.send_signal(signal.SIGTERM)
        try:
            said, _ = self._process.communicate(timeout=PATIENCE_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 0
        return said


@pytest.fixture(scope="module")
def proxy(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One for all tests. At the end, what it has kept shows that it met every client, and only known messages."""
    upstream = broker.bootstrap_servers.split(",")[0]
    running = Proxy(upstream, tmp_path_factory.mktemp("proxy"))
    yield running
    summary = running.stop()
    assert re.search(r"^\s*Produce ", summary, re.MULTILINE)
    for exchange in read_exchanges(running.flows):
        assert exchange.api_key in ApiKey.__members__.values() and exchange.request is not None
        assert exchange.answer is not None or exchange.outcome != "answered"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_produces_and_consumes_through_the_proxy(
    client: Program, proxy: Proxy, specifications: dict[str, str]
) -> None:
    prefix = f"proxied-{client.name}"
    run(client, "write", proxy.bootstrap_servers, prefix, specifications[client.name])
    run(client, "read", proxy.bootstrap_servers, prefix, specifications[client.name])


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_client_consumes_in_a_group_through_the_proxy(name: str, proxy: Proxy) -> None:
    topic = f"proxied-{name}"
    with Client(ClientSettings({"bootstrap.servers": proxy.bootstrap_servers})) as client:
        wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        created = client.request(CreateTopicsRequest(topics=[wanted]))
        assert created.topics[0].error_code == 0
    case = {"bootstrap": proxy.bootstrap_servers, "protocol": "PLAINTEXT", "action": "round-trip", "topic": topic}
    with running_program(name) as program:
        answer = program.ask({**case, "records": RECORDS, "seconds": 0.1})
    assert answer == {"read": RECORDS, "distinct": RECORDS}


@pytest.mark.parametrize("client", [each for each in CLIENTS if each.name in TRANSACTING], ids=lambda each: each.name)
def test_a_client_administers_topics_and_copies_records_exactly_once_through_the_proxy(
    client: Program, proxy: Proxy
) -> None:
    run(client, "admin", proxy.bootstrap_servers, f"proxied-of-{client.name}")
    run(client, "transact", proxy.bootstrap_servers, f"proxied-transactions-of-{client.name}")
