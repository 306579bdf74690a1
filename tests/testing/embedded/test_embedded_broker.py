"""An embedded broker's life: started, stopped, killed and brought up again, in a thread or in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from minibroker.broker.configs.settings import SettingsError
from minibroker.broker.lifecycle import StartError
from minibroker.testing import Broker
from minibroker.testing.loops import NotRunning

LAST_CHECKPOINTS = ".kafka_cleanshutdown"


def produce(broker: Broker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(20) == 0


def consumed(broker: Broker, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    try:
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def address(broker: Broker) -> tuple[str, int]:
    host, port = broker.bootstrap_servers.split(":")
    return host, int(port)


def test_a_broker_runs_inside_its_block_and_leaves_no_files() -> None:
    with Broker() as broker:
        produce(broker, "a", "b")
        assert consumed(broker, 2) == [b"a", b"b"]
        directory, where = broker.directory, address(broker)
        assert (directory / "t-0").is_dir()
    assert not directory.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("minibroker")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)


def test_a_given_directory_is_kept_and_can_be_reused(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        produce(broker, "a")
    assert (tmp_path / LAST_CHECKPOINTS).exists()
    with Broker(directory=tmp_path) as broker:
        assert consumed(broker, 1) == [b"a"]


def test_a_restart_keeps_ports_and_data() -> None:
    with Broker(nodes=2) as broker:
        before = broker.bootstrap_servers
        produce(broker, "a")
        broker.restart()
        produce(broker, "b")
        assert broker.bootstrap_servers == before
        assert consumed(broker, 2) == [b"a", b"b"]


def test_a_kill_is_a_crash_and_the_port_is_refused_until_the_restart() -> None:
    with Broker() as broker:
        produce(broker, "a")
        with socket.create_connection(address(broker)) as client:
            broker.kill()
            with contextlib.suppress(ConnectionResetError):  # where it was not accepted yet
                assert client.recv(1) == b""
        assert not (broker.directory / LAST_CHECKPOINTS).exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(broker))
        with pytest.raises(NotRunning):
            broker.kill()
        broker.restart()
        assert consumed(broker, 1) == [b"a"]


def test_a_killed_broker_can_be_stopped() -> None:
    with Broker() as broker:
        broker.kill()


def test_waiting_for_a_broker_that_stops_fails() -> None:
    broker = Broker().start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.expect, "t", 1, "60 s")
        while broker.watch not in broker.interceptors:
            time.sleep(0.001)
        broker.stop()
        with pytest.raises(NotRunning, match="stopped meanwhile"):
            waiting.result(20)


def test_a_broker_runs_in_the_callers_event_loop() -> None:
    async def use() -> None:
        async with Broker() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            try:
                assert (await producer.send_and_wait("t", b"a")).offset == 0
                await broker.arestart()
                assert (await producer.send_and_wait("t", b"b")).offset == 1
            finally:
                await producer.stop()
            with pytest.raises(RuntimeError, match="await arestart"):
                broker.restart()
            assert not [thread for thread in threading.enumerate() if thread.name == "minibroker"]

    asyncio.run(use())


def test_a_broker_of_another_thread_can_be_awaited() -> None:
    async def use(broker: Broker) -> None:
        before = broker.running
        await broker.arestart()
        assert broker.running is not before

    with Broker() as broker:
        asyncio.run(use(broker))


def test_a_broker_takes_settings_by_kafkas_names() -> None:
    with Broker({"num.partitions": 3, "log.retention.ms": -1}) as broker:
        produce(broker, "a")
        assert sorted(path.name for path in broker.directory.glob("t-*")) == ["t-0", "t-1", "t-2"]


def test_the_broker_does_not_busy_poll_unless_its_settings_ask_for_it() -> None:
    for settings, duration_us in (({}, 0), ({"socket.busy.poll.us": 60}, 60)):
        with Broker(settings) as broker:
            assert broker.running.cluster.settings["socket.busy.poll.us"] == duration_us


def test_auto_creation_of_topics_can_be_disabled() -> None:
    with Broker(auto_create=False) as broker:
        assert broker.running.cluster.settings["auto.create.topics.enable"] is False


def test_the_same_seed_gives_the_same_ids() -> None:
    def cluster_id(seed: int) -> str:
        with Broker(seed=seed) as broker:
            return broker.running.cluster.cluster_id

    assert cluster_id(1) == cluster_id(1) != cluster_id(2)


def test_an_invalid_setting_is_reported_immediately() -> None:
    with pytest.raises(SettingsError, match="num.partitions"):
        Broker({"num.partitions": "many"})


def test_an_unknown_setting_is_rejected_by_name() -> None:
    with pytest.raises(SettingsError, match="^num.partition: unknown setting"):
        Broker({"num.partition ": 1})


@pytest.mark.parametrize("nodes", [0, 101, "3"])
def test_the_number_of_nodes_is_validated(nodes: Any) -> None:
    with pytest.raises(ValueError, match="nodes is a number from 1 to 100"):
        Broker(nodes=nodes)


def test_a_port_in_use_is_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    with Broker() as broker:
        host, port = address(broker)
        other = Broker({"listeners": f"PLAINTEXT://{host}:{port}"}, directory=tmp_path)
        with pytest.raises(StartError):
            other.start()
    with other:
        assert address(other) == (host, port)


def test_a_broker_cannot_be_started_twice() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="started already"):
        broker.start()


def test_operations_on_a_stopped_broker_are_errors() -> None:
    broker = Broker()
    for asked in ("bootstrap_servers", "directory", "running", "loop"):
        with pytest.raises(NotRunning):
            getattr(broker, asked)
    broker.stop()


FORKED = """
import os, signal, sys, warnings
from minibroker.testing import Broker
from minibroker.testing.loops import NotRunning

warnings.simplefilter("ignore")  # newer Pythons warn of a fork where there are threads
broker = Broker().start()
directory = broker.directory
child = os.fork()
if child == 0:
    signal.alarm(20)
    if sys.argv[1] == "leaves":
        broker.stop()
    if sys.argv[1] == "asks":
        try:
            broker.create_topic("of-a-fork")
        except NotRunning as error:
            sys.exit(str(os.getppid()) not in str(error))
    sys.exit(sys.argv[1] == "asks")
_, status = os.waitpid(child, 0)
assert status == 0, f"the fork ended with {status}"
assert directory.is_dir()
broker.create_topic("of-ours")
assert (directory / "of-ours-0").is_dir()
broker.stop()
assert not directory.exists()
"""


@pytest.mark.parametrize("how", ["leaves", "asks", "exits"])
def test_a_forked_process_neither_stops_the_broker_nor_removes_its_directory(how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", FORKED, how], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
