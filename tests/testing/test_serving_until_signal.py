"""The metrics of a test kit's process: they count on, and show what is there now, whatever is done to the broker."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from kafka import KafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from minibroker.broker.configs.settings import Settings
from minibroker.broker.monitoring.measuring import Measurements, bind_metrics_port
from minibroker.broker.monitoring.metrics import MetricSources, generate_exposition
from minibroker.protocol.apis import ApiKey
from minibroker.testing import Broker
from tests.running import RunningBroker, environment_for_broker, running_broker, serve_command
from tests.testing.control.test_control import Control
from tests.testing.test_state import until

pytestmark = pytest.mark.usefixtures("leaves_sockets")
STATIC_BROKER = ConfigSource.STATIC_BROKER_CONFIG.value
SERVED_AT = re.compile(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)")


class Scraper:
    """Asks a process for its metrics."""

    def __init__(self, broker: RunningBroker) -> None:
        (self.url,) = SERVED_AT.findall(broker.log)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of a name that have these labels."""
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples if sample.name == f"minibroker_{name}"]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def status(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def controlled(directory: Path, *options: str) -> Iterator[tuple[Control, Scraper]]:
    with running_broker(directory, options=("--control", "0", "--metrics-port", "0", *options)) as broker:
        yield Control(broker), Scraper(broker)


def produce(bootstrap_servers: str, count: int = 1) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, request_timeout_ms=20_000, linger_ms=0)
    for _ in range(count):
        producer.send("t", b"v").get(60)
    producer.close()


def test_metrics_continue_after_reset_restore_and_restart(tmp_path: Path) -> None:
    with controlled(tmp_path) as (control, metrics):
        produce(control.bootstrap_servers, 2)
        assert metrics.value("log_end_offset", topic="t") == 2
        number = control.post("/v1/snapshots")["snapshot"]
        for path, end_offset in (
            ("/v1/reset", 1),
            (f"/v1/snapshots/{number}/restore", 3),
            ("/v1/restart", 4),
        ):
            before = {
                name: metrics.value(name) for name in ("connections_accepted_total", "fsync_duration_seconds_count")
            }
            produced, started = metrics.value("requests_total", api="Produce"), metrics.value("start_time_seconds")
            control.post(path, status=204)
            assert metrics.value("topics") == (0 if end_offset == 1 else 1)
            produce(control.bootstrap_servers)
            assert metrics.value("requests_total", api="Produce") == produced + 1
            assert metrics.value("log_end_offset", topic="t") == end_offset
            assert metrics.value("start_time_seconds") == started
            assert all(metrics.value(name) > value for name, value in before.items()), before


def test_a_stopped_broker_has_no_metrics_until_it_is_restarted(tmp_path: Path) -> None:
    with controlled(tmp_path) as (control, metrics):
        produce(control.bootstrap_servers)
        control.post("/v1/kill", status=204)
        assert metrics.status() == (503, "The broker is not running.\n")
        control.post("/v1/restart", status=204)
        assert metrics.value("requests_total", api="Produce") == 1
        assert metrics.value("connections") == 0 < metrics.value("connections_accepted_total")


def test_metrics_count_errors_caused_by_emulation_and_faults(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("- {api: Produce, error: NOT_LEADER_OR_FOLLOWER, times: 2}\n")
    with controlled(tmp_path, "--faults", str(tmp_path / "faults.yaml"), "--emulate", "2.0") as (control, metrics):
        produce(control.bootstrap_servers)
        assert metrics.value("requests_total", api="Produce", version="6") == 3
        assert metrics.value("request_errors_total", api="Produce", code="NOT_LEADER_OR_FOLLOWER") == 2
        assert metrics.value("request_errors_total", api="Produce", code="NONE") == 0


def test_a_metrics_port_in_use_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*serve_command(tmp_path), "--control", "0", "--metrics-port", str(port)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert run.returncode == 2
    assert run.stderr.startswith(f"minibroker: cannot listen on 127.0.0.1:{port}: ") and run.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.fixture
def measured() -> Iterator[Measurements]:
    with bind_metrics_port(Settings({}), 0, lambda: 0) as made:
        assert made is not None
        yield made


def test_responses_by_faults_are_counted_and_recorded_in_the_journal(measured: Measurements) -> None:
    broker = Broker()
    broker.set_measurements(measured)
    with broker:
        broker.journal.on()
        fault = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        produce(broker.bootstrap_servers)
        assert fault.hits == 1
        assert [exchange.errors for exchange in broker.requests(api="Produce")] == [("NOT_LEADER_OR_FOLLOWER",), ()]
    produced = measured.requests.by_api[ApiKey.PRODUCE]
    assert (sum(produced.requests.values()), sum(produced.durations), produced.lost) == (2, 2, 0)
    assert measured.syncs.durations == [0] * len(measured.syncs.durations), "nothing temporary is synced"


def test_a_request_lost_at_a_paused_node_is_counted_as_lost(measured: Measurements) -> None:
    broker = Broker()
    broker.set_measurements(measured)
    with broker:
        node_id = next(iter(broker.ports.listeners))
        broker.pause_node(node_id)
        broker.journal.on()
        broker.faults.add(api="ApiVersions", error="NOT_CONTROLLER")
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), 20) as client:
            client.sendall(bytes.fromhex("0000000a0012000000000001ffff"))  # ApiVersions of version 0
            until(lambda: ApiKey.API_VERSIONS in measured.requests.by_api)
        counted = measured.requests.by_api[ApiKey.API_VERSIONS]
        until(lambda: counted.lost == 1)
        assert (counted.requests[0], counted.errors.total(), sum(counted.durations)) == (1, 0, 0)
        broker.resume_node(node_id)


def test_a_reset_clears_cleaner_gauges_and_keeps_cleaner_counters(measured: Measurements) -> None:
    broker = Broker()
    broker.set_measurements(measured)
    with broker:
        measured.cleaner.cleanings = measured.cleaner.uncleanable = 3
        measured.cleaner.max_dirty_ratio = 0.9
        broker.reset()
        assert (measured.cleaner.cleanings, measured.cleaner.uncleanable, measured.cleaner.max_dirty_ratio) == (3, 0, 0)


def test_a_metrics_scrape_that_has_begun_is_completed_despite_a_reset(measured: Measurements) -> None:
    async def scraped() -> str:
        broker = Broker()
        broker.set_measurements(measured)
        async with broker:
            await broker.acreate_topic("t", 400)
            running = broker.running
            observed = MetricSources(running.cluster, running.server, *measured[2:5], measured.started_s)
            scrape = asyncio.ensure_future(generate_exposition(observed))
            await asyncio.sleep(0)  # it has begun
            broker.reset()
            assert not scrape.done()
            return (await scrape).decode()

    text = asyncio.run(scraped())
    assert text.count("minibroker_log_segments{") == 400


@pytest.mark.parametrize("options", [(), ("--control", "0"), ("--emulate", "4.3")])
def test_only_given_settings_are_described_as_static_broker_configs(tmp_path: Path, options: tuple[str, ...]) -> None:
    with running_broker(tmp_path, options=options) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        ((_, shown),) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).items()
        given = {entry.name for entry in shown.result(30).values() if entry.source == STATIC_BROKER}
        assert given == {"listeners", "log.dirs"}
