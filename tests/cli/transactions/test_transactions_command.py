"""`minibroker transactions` against a broker, with producers that begin transactions and do not end them."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.produce import ProduceRequest
from tests.broker.harness import TopicData, batch
from tests.cli.conftest import Run
from tests.clients.confluent import Confluent
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker in which a transaction can be left hanging."""
    with running_broker(tmp_path_factory.mktemp("broker"), "transaction.partition.verification.enable=false") as broker:
        yield broker


@pytest.fixture
def open_transaction(broker: RunningBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The transactional id of a transaction with one record in partition 0 of the topic of the same name."""
    name = request.node.name
    with Confluent().admin(broker.bootstrap_servers) as admin:
        admin.create_topic(name, 1, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    assert producer.flush(20) == 0
    yield name
    producer.abort_transaction(20)


def rows(run_client: Run, *arguments: str) -> Any:
    result = run_client("transactions", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_transactions_are_listed_by_state(run_client: Run, open_transaction: str) -> None:
    (found,) = [row for row in rows(run_client, "list") if row["transactional_id"] == open_transaction]
    assert (found["state"], found["coordinator"]) == ("Ongoing", 1)
    assert open_transaction in [row["transactional_id"] for row in rows(run_client, "list", "--state", "ongoing")]
    assert open_transaction not in [row["transactional_id"] for row in rows(run_client, "list", "--state", "Empty")]
    lines = [line.split() for line in run_client("transactions", "list").stdout.splitlines()]
    assert lines[0] == ["transactional_id", "coordinator", "producer_id", "state"]
    assert [open_transaction, "1", str(found["producer_id"]), "Ongoing"] in lines


def test_a_transaction_is_described(run_client: Run, open_transaction: str) -> None:
    found = rows(run_client, "describe", open_transaction)
    assert (found["state"], found["producer_epoch"], found["timeout_ms"]) == ("Ongoing", 0, 60_000)
    assert found["partitions"] == [f"{open_transaction}-0"] and found["start_ms"] > 0
    table = run_client("transactions", "describe", open_transaction).stdout
    assert f"{open_transaction}-0" in table and "start (UTC)" in table
    assert re.search(r" 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d ", table)
    unknown = run_client("transactions", "describe", "nobody")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "minibroker: there is no transactional id nobody\n"
    almost = run_client("transactions", "describe", open_transaction[:-1])
    assert almost.stderr.endswith(f"; did you mean {open_transaction}?\n")


def test_a_transaction_known_to_its_coordinator_is_not_listed_as_hanging(
    run_client: Run, open_transaction: str
) -> None:
    asked = ["find-hanging", "--topic", open_transaction, "--max-transaction-timeout", "0"]
    assert rows(run_client, *asked) == []


def test_a_transaction_unknown_to_all_coordinators_is_found_and_aborted(run_client: Run, broker: RunningBroker) -> None:
    run_client("topics", "create", "hangs")
    write_hanging(broker, "hangs")
    asked = ["find-hanging", "--topic", "hangs"]
    (found,) = rows(run_client, *asked)
    told = (found["topic"], found["partition"], found["producer_id"], found["start_offset"])
    assert told == ("hangs", 0, 4711, 0)
    assert "4711" in run_client("transactions", *asked).stdout
    assert [row["producer_id"] for row in rows(run_client, "find-hanging")] == [4711]
    where = ["abort", "--topic", "hangs", "--partition", "0", "--start-offset"]
    wrong = run_client("transactions", *where, "7")
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "minibroker: no open transaction of hangs-0 begins at offset 7\n",
    )
    assert run_client("transactions", *where, "0").stdout == "aborted the transaction of producer 4711 in hangs-0\n"
    assert rows(run_client, *asked) == []


def write_hanging(broker: RunningBroker, topic: str) -> None:
    """Write a batch of a transaction that was never begun, which this broker does not verify."""
    records = batch("x", transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0)
    data = TopicData.PartitionProduceData(index=0, records=memoryview(records))
    request = ProduceRequest(
        transactional_id="never-begun",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicData(name=topic, partition_data=[data])],
    )
    with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers})) as client:
        (answer,) = client.request(request, highest=9).responses[0].partition_responses
    assert answer.error_code == 0


def test_an_unknown_topic_or_server_is_an_error(run: Run, run_client: Run) -> None:
    missing = run_client("transactions", "find-hanging", "--topic", "none")
    assert (missing.exit_code, missing.stderr) == (1, "minibroker: there is no topic none\n")
    nobody = run("transactions", "list", "--bootstrap-server", "127.0.0.1:1")
    assert nobody.exit_code == 2
    assert nobody.stderr.startswith("minibroker: cannot connect to 127.0.0.1:1: ")


def test_an_invalid_client_setting_is_rejected(run_client: Run) -> None:
    result = run_client("transactions", "list", "--client", "sasl.mechanizm=PLAIN")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "minibroker: --client: sasl.mechanizm is not known; did you mean sasl.mechanism" in result.stderr


def test_a_response_in_another_protocol_is_reported_in_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = Thread(target=answer_once, args=(listener, b"HTTP/1.1 400 Bad Request"))
        thread.start()
        result = run("transactions", "list", "--bootstrap-server", place)
        thread.join()
    told = f"minibroker: cannot connect to {place}: the server speaks HTTP, not Kafka's protocol\n"
    assert (result.exit_code, result.stderr) == (2, told)


def answer_once(listener: socket.socket, answer: bytes) -> None:
    """Answer the first request."""
    with listener.accept()[0] as connection:
        connection.recv(1000)
        connection.sendall(answer)


def test_verify_refers_to_find_hanging_for_open_transactions_of_a_running_broker(
    run: Run, broker: RunningBroker, open_transaction: str
) -> None:
    pytest.importorskip("pyarrow")  # the verifier is the pipeline's
    where = ("--path", str(broker.directory / "data"), "--topic", open_transaction)
    said = run("pipeline", "verify", "--engine", "local", *where, "--checks", "transactions", "--json")
    (row,) = map(json.loads, said.stdout.splitlines())
    assert row["kind"] == "open-transaction"
    assert row["detail"].endswith("a broker uses the directory: `minibroker transactions find-hanging` asks it")
