"""`minibroker consume --out`: the records as a file that other programs read, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from confluent_kafka import Producer

from minibroker.cli.main import main
from tests.cases import for_each
from tests.cli.conftest import runner
from tests.pipeline.sink.committed import create_topic
from tests.running import RunningBroker, running_broker

T_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with ten records in each of two partitions of `orders`."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        create_topic(broker.bootstrap_servers, "orders", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            producer.produce(
                "orders", b"%d" % number, partition=number % 2, timestamp=1_790_000_000_000 + number * 1000
            )
        assert producer.flush(60) == 0
        yield broker


def consume(broker: RunningBroker, *arguments: str) -> Result:
    return runner().invoke(main, ["consume", *arguments, "--bootstrap-server", broker.bootstrap_servers])


@for_each(
    ("arguments", "values"),
    [
        ((), [*range(0, 20, 2), *range(1, 20, 2)]),
        (("--partition", "1", "--from", "8"), [17, 19]),
        (("--from", "1", "--to", "3"), [2, 4, 3, 5]),
        (("--from", f"@{T_MS + 18_000}"), [18, 19]),
        (("--from", "10"), []),
    ],
)
def test_consume_writes_records_to_a_parquet_file(
    broker: RunningBroker, tmp_path: Path, arguments: tuple[str, ...], values: list[int]
) -> None:
    path = tmp_path / "orders.parquet"
    result = consume(broker, "orders", "--out", str(path), *arguments)
    assert (result.exit_code, result.stdout) == (0, f"{len(values)} records written to {path}\n"), result.stderr
    assert pq.read_table(path).column("value").to_pylist() == [b"%d" % value for value in values]


@for_each(
    ("arguments", "values"),
    [((), [b"paid"]), (("--client", "isolation.level=read_uncommitted"), [b"lost", b"lost, too", b"paid"])],
)
def test_records_of_aborted_transactions_are_omitted_by_default(
    broker: RunningBroker, tmp_path: Path, arguments: tuple[str, ...], values: list[bytes]
) -> None:
    topic = f"paid-{len(values)}"
    create_topic(broker.bootstrap_servers, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"lost")
    producer.produce(topic, b"lost, too")
    producer.flush(60)
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"paid")
    producer.commit_transaction(60)
    result = consume(broker, topic, "--out", str(tmp_path / "paid.parquet"), *arguments)
    assert result.exit_code == 0, result.stderr
    assert pq.read_table(tmp_path / "paid.parquet").column("value").to_pylist() == values


def test_an_arrow_file_has_the_same_rows_as_parquet(broker: RunningBroker, tmp_path: Path) -> None:
    for name in ("orders.arrow", "orders.parquet"):
        assert consume(broker, "orders", "--out", str(tmp_path / name)).exit_code == 0
    assert pa.ipc.open_file(str(tmp_path / "orders.arrow")).read_all() == pq.read_table(tmp_path / "orders.parquet")


@for_each(
    ("arguments", "complaint"),
    [
        (("orders", "--out", "orders.csv"), "ends with neither of .parquet, .arrow"),
        (("orders", "--out", "orders.arrow", "--json"), "--json cannot be used with --out, which prints lines"),
        (("orders", "--out", "orders.arrow", "--last", "3"), "which reads records one by one"),
        (("orders", "--out", "orders.arrow", "--from", "latest"), "one offset or time each"),
        (("orders", "--out", "orders.arrow", "--from", "0=3"), "one offset or time each"),
        (("orders-*", "--out", "orders.arrow"), "no patterns"),
        (("missing", "--out", "orders.arrow"), "topic missing does not exist"),
    ],
)
def test_options_for_printed_lines_are_rejected_for_a_file(
    broker: RunningBroker, tmp_path: Path, arguments: tuple[str, ...], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = consume(broker, *arguments)
    assert result.exit_code != 0 and complaint in result.stderr
    assert list(tmp_path.iterdir()) == []
