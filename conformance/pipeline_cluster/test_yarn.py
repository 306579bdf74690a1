"""Queries and writes on YARN, whose containers have nothing of ours but what is shipped to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.pipeline_cluster.drivers import running_driver
from conformance.pipeline_cluster.yarn import running_yarn
from tests.pipeline.sink.committed import create_topic
from tests.running import RunningBroker

pytestmark = pytest.mark.thorough  # two daemons, and containers for an application
COUNT = 1000
TASKS = 4


def test_a_topic_is_written_exactly_once_read_and_verified_on_yarn(
    broker: RunningBroker, archive: Path, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "of-yarn", TASKS)
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    sink = {**servers, "topic": "of-yarn", "delivery": "exactly-once", "writeId": "of-yarn"}
    committed = {**servers, "subscribe": "of-yarn", "isolation.level": "read_committed"}
    small = {"spark.executor.instances": "1", "spark.yarn.am.memory": "384m"}
    with running_yarn(tmp_path) as cluster, running_driver(cluster, archive, **small) as driver:
        for _ in range(2):
            driver.ask("write", options=sink, count=COUNT, tasks=TASKS)
        rows = driver.ask("values", options=committed)["rows"]
        assert sorted(int(value) for _, _, value in rows) == list(range(COUNT))
        done = driver.ask("command", arguments=["verify", "--path", str(broker.directory / "data")])
        assert (done["status"], done["out"]) == (0, ""), done["err"]
