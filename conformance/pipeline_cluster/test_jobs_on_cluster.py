"""Jobs on a cluster find and write what one process does. Archives are in `test_storage_of_cluster`."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from conformance.pipeline_cluster.drivers import RunningDriver
from minibroker.cli.pipeline.pipeline_command import pipeline
from tests.pipeline.sink.committed import Read, create_topic, read
from tests.running import running_broker

pytestmark = pytest.mark.thorough  # an application for each job
COUNT = 3000
KEYS = 40
VALUE_BYTES = 1500
T = 1_790_000_000_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that no broker uses any more, with a topic of three partitions in several segments."""
    where = tmp_path_factory.mktemp("source")
    with running_broker(where) as broker:
        create_topic(broker.bootstrap_servers, "prices", 3, segment_bytes=str(1 << 20))
        random = Random(7)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
        for number in range(COUNT):
            value = None if number % 50 == 0 else random.randbytes(VALUE_BYTES)
            headers = [("n", b"%d" % number)]
            producer.produce(
                "prices", value, b"%d" % (number % KEYS), number % 3, timestamp=T + number, headers=headers
            )
            if number % 100 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
    assert len(list((where / "data" / "prices-0").glob("*.log"))) > 1
    return where / "data"


@pytest.fixture(scope="module")
def prices(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Read]:
    return records_in(directory, tmp_path_factory.mktemp("served"))


def records_in(directory: Path, where: Path, topic: str = "prices") -> list[Read]:
    """What a client reads from a broker on this directory."""
    (where / "data").symlink_to(directory)
    with running_broker(where) as broker:
        return read(broker.bootstrap_servers, topic)


def here(*arguments: str) -> tuple[int, str]:
    """Run a job in this process."""
    result = CliRunner().invoke(pipeline, [*arguments, "--engine", "local"])
    return result.exit_code, result.stdout


def test_an_archive_made_on_a_cluster_has_the_same_rows_as_one_made_locally(
    driver: RunningDriver, directory: Path, tmp_path: Path
) -> None:
    arguments = ("archive", "--path", str(directory), "--topic", "prices", "--json", "--out")
    assert here(*arguments, str(tmp_path / "here"))[0] == 0
    driver.run(*arguments, str(tmp_path / "there"))
    order = [("partition", "ascending"), ("offset", "ascending")]
    one, other = (pq.read_table(tmp_path / name).sort_by(order) for name in ("here", "there"))
    assert one.num_rows == COUNT and one == other


def test_verify_finds_the_same_on_a_cluster_as_locally(driver: RunningDriver, directory: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "prices-0"
    damaged.mkdir()
    for file in (directory / "prices-0").iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    log = min(damaged.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    arguments = ("verify", "--path", str(tmp_path), "--json")
    done = driver.ask("command", arguments=arguments)
    status, out = here(*arguments)
    assert done["status"] == status == 1
    assert sorted(done["out"].splitlines()) == sorted(out.splitlines())


def test_rewrite_on_a_cluster_keeps_every_record(
    driver: RunningDriver, directory: Path, prices: list[Read], tmp_path: Path
) -> None:
    written = tmp_path / "rewritten"
    driver.run("rewrite", "--path", str(directory), "--output", str(written), "--compression", "zstd")
    (tmp_path / "served").mkdir()
    assert records_in(written, tmp_path / "served") == prices
